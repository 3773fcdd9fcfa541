# SPDX-License-Identifier: Apache-2.0
"""The ```sh blocks of a page run from top to bottom, and so do its ```python run blocks.

All blocks of a page are one script of `bash -e` in an empty folder, whose lines have the numbers of the page. The blocks see
`orthant` and `mpirun` on the PATH and the root of the repository in $ORTHANT_ROOT, which is not exported. With Open MPI,
`mpirun` gets the options that it needs with more ranks than cores. A block of shell that needs a Python module runs if `python3`
can import it there; a block of Python runs with the interpreter of this script, and always needs NumPy.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

SHOWN_LINES = 8
TRACE = "trap 'printf \"%s %s\\n\" \"$LINENO\" \"$BASH_COMMAND\" > \"$CHECK_DOCS_LAST\"' DEBUG; "
SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl_base_warn_component_unused": "0",
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "LC_ALL": "C.UTF-8", "TERM": "dumb",
}
LAUNCHER = """#!/bin/sh
case " $* " in
  *" --version "*) exec "{real}" "$@" ;;
  *" --bind-to "*) exec "{real}" --oversubscribe "$@" ;;
esac
exec "{real}" --oversubscribe --bind-to none "$@"
"""
MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
SHELL_START = re.compile(r"^\s*(?:\$ |\./|(?:mpirun|srun|sbatch|cmake|ctest|git|pip|cd|export|docker|apptainer)\s|orthant [a-z-]+ (?:-|\S+\.))")


def make_launchers(folder):
    """Programs `mpirun` and `mpiexec` for Open MPI; others need no options."""
    os.makedirs(folder)
    for name in ("mpirun", "mpiexec"):
        real = shutil.which(name)
        if real is None:
            continue
        version = subprocess.run([real, "--version"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
                                 env=dict(os.environ, **SETTINGS))
        if "Open MPI" not in version.stdout + version.stderr and "OpenRTE" not in version.stdout + version.stderr:
            continue
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(LAUNCHER.format(real=real))
        os.chmod(path, 0o755)


def environment_of(program, folders, home, **others):
    """The environment of a page: `folders` and the one of the program, if it is known, come first on the PATH."""
    found = {name: value for name, value in os.environ.items() if not name.startswith("ORTHANT_")}
    first = [*folders, *([os.path.dirname(os.path.abspath(program))] if program else [])]
    found.update(SETTINGS, HOME=home, PATH=os.pathsep.join([*first, os.environ["PATH"]]), **others)
    return found


@functools.lru_cache(maxsize=None)
def can_import(python, module, program):
    """Whether the interpreter can import a module in the environment of a page."""
    with tempfile.TemporaryDirectory(prefix="check_docs-") as home:
        try:
            done = subprocess.run([python, "-c", f"import {module}"], cwd=home, env=environment_of(program, [], home), check=False,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except OSError:
            return False
        return done.returncode == 0


def plan(page, program=None, has_module=can_import):
    """(blocks to run, [(block, reason)] of the others that are shell or Python to run), and errors of fences and marks.

    The others without a `not run` mark need a module that is missing.
    """
    runs, others, errors = [], [], []
    fences = {block.line - 1 for block in page.blocks}
    for line, modules in page.needs():
        if line not in fences:
            errors.append(page.error(line, "the mark 'needs' does not stand directly above a block"))
        elif not modules or not all(MODULE.fullmatch(module) for module in modules):
            errors.append(page.error(line, "the mark 'needs' does not name modules of Python"))
    marked = {block.line - 1 for block in page.blocks if block.reason is not None}
    for line, reason in page.marks():
        if line not in marked:
            errors.append(page.error(line, "the mark 'not run' does not stand directly above a block"))
        elif not reason:
            errors.append(page.error(line, "the mark 'not run' gives no reason"))
    for block in page.blocks:
        if block.is_shell or block.is_python:
            if block.reason is not None:
                others.append((block, block.reason))
                continue
            python = sys.executable if block.is_python else "python3"
            needed = (["numpy"] if block.is_python else []) + [module for module in block.needs if MODULE.fullmatch(module)]
            missing = [module for module in dict.fromkeys(needed) if not has_module(python, module, program)]
            if missing:
                others.append((block, f"{' and '.join(missing)} cannot be imported"))
            else:
                runs.append(block)
        elif block.language in ("", "bash", "shell", "console", "zsh") and any(SHELL_START.match(line) for line in block.lines):
            errors.append(page.error(block.line, "a block of shell commands begins with ```sh"))
    return runs, others, errors


def script_of(page, runs, folder):
    """The script: lines of shell where they stand in the page, and a call of Python at the fence of each block of Python."""
    lines = [""] * len(page.lines)
    for number, block in enumerate(runs):
        if block.is_shell:
            lines[block.line:block.line + len(block.lines)] = block.lines
        else:
            path = os.path.join(folder, f"block{number}.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join(block.lines) + "\n")
            lines[block.line - 1] = f"ORTHANT_ROOT=\"$ORTHANT_ROOT\" '{sys.executable}' '{path}'"
    # Not exported: orthant takes variables that begin with ORTHANT_ for its options.
    lines[0] = f"ORTHANT_ROOT={shlex.quote(page.root)}; {TRACE}{lines[0]}"
    path = os.path.join(folder, "page.sh")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return path


def end(job):
    """Ends what the page has started; its processes form a group of their own."""
    try:
        os.killpg(job.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    job.wait()


def last_command(path, output):
    """(line, command) that ran last, or that Bash could not read."""
    syntax = re.search(r"page\.sh: line (\d+): (syntax error.*|unexpected EOF.*)", output)
    if syntax:
        return int(syntax.group(1)), syntax.group(2)
    try:
        with open(path, encoding="utf-8") as file:
            number, _, command = file.read().partition(" ")
        return int(number), command.strip()
    except (OSError, ValueError):
        return 1, ""


def check(page, program, limit, has_module=can_import):
    """Errors, the number of blocks that ran and [(block, reason)] of those that did not."""
    runs, others, errors = plan(page, program, has_module)
    if not runs:
        return errors, 0, others
    with tempfile.TemporaryDirectory(prefix="check_docs-") as scratch:
        control, work = os.path.join(scratch, "control"), os.path.join(scratch, "work")
        temporary = os.path.join(scratch, "tmp")  # other jobs of Open MPI do not remove its files
        for folder in (control, work, temporary):
            os.makedirs(folder)
        make_launchers(os.path.join(control, "bin"))
        path = script_of(page, runs, control)
        last, output = os.path.join(control, "last"), os.path.join(control, "output")
        environment = environment_of(program, [os.path.join(control, "bin")], work, CHECK_DOCS_LAST=last, TMPDIR=temporary)
        with open(output, "w", encoding="utf-8") as file, \
                subprocess.Popen(["bash", "-e", path], cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=file,
                                 stderr=subprocess.STDOUT, start_new_session=True) as job:
            try:
                status = job.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                end(job)
        with open(output, encoding="utf-8", errors="replace") as file:
            text = file.read()
        if status != 0:
            line, command = last_command(last, text)
            what = f"after {limit:g} s of the page this still runs" if status is None else f"status {status}"
            first = command.split("\n")[0]
            printed = [part for part in text.split("\n") if part.strip(" -")]
            shown = printed[-SHOWN_LINES:]
            shown = [part for part in printed if part.startswith("orthant: error:") and part not in shown][-1:] + shown
            errors.append(page.error(line, f"{what}: {first}" + "".join(f"\n    {part}" for part in shown)))
    return errors, len(runs), others
