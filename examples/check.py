#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the examples and compares the last lines that they print with what is expected.

usage: examples/check.py [NAME ...] [--orthant PATH] [--tolerance R] [--timeout SECONDS] [--print]

Each NAME/run.sh runs in an empty temporary folder, with `orthant` on PATH and the root of the repository in ORTHANT_ROOT. As
many of its last lines as NAME/expected.txt has are compared with that file. Words must be equal. Numbers may differ by the
relative tolerance, by default 5 %. `...` in expected.txt stands for anything within a line, or for nothing. White space counts
as one blank.

Without a NAME all examples run. Without --orthant the program is the `orthant` of PATH. LAUNCH is passed on to run.sh; without
LAUNCH it is the value of ORTHANT_MPIRUN, for instance "mpirun --oversubscribe --bind-to none -n". The exit status is 0
if all examples print what is expected, 1 if one does not, and 2 if the command line is wrong.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

EXAMPLES = pathlib.Path(__file__).resolve().parent

# A number is a word of its own: 0.93, 1,024, 2e-3 and -1, but no part of fp32 or of the grid 1x2x2x1.
NUMBER = r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w|\.\d)"

# What Open MPI needs to start four ranks on two cores, or as root. Other MPI libraries do not read these variables.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def value_of(number):
    return float(number.replace(",", ""))


def difference(expected, printed, tolerance):
    """What is wrong with a printed line, or None."""
    pattern, numbers, end = "", [], 0
    for match in re.finditer(rf"\.\.\.|\s+|{NUMBER}", expected):
        pattern += re.escape(expected[end:match.start()])
        end = match.end()
        if match.group() == "...":
            pattern += ".*?"
        elif match.group().isspace():
            pattern += r"\s+"
        else:
            pattern += f"({NUMBER})"
            numbers.append(match.group())
    pattern += re.escape(expected[end:])
    found = re.fullmatch(pattern, printed)
    if not found:
        return "the words differ"
    for wanted, got in zip(numbers, found.groups()):
        scale = max(abs(value_of(wanted)), abs(value_of(got)))
        apart = abs(value_of(wanted) - value_of(got))
        if apart > tolerance * scale:
            return f"{got} is {100 * apart / scale:.1f} % from {wanted}, and {100 * tolerance:g} % are allowed"
    return None


def lines_of(text):
    return [line.strip() for line in text.splitlines() if line.strip()]


def fault(example, result, tolerance):
    """The first difference between what run.sh printed and expected.txt as one line of text, or None."""
    if result.returncode != 0:
        errors = lines_of(result.stderr)
        reason = next((line for line in errors if "error:" in line), errors[-1] if errors else "no message")
        return f"run.sh ended with status {result.returncode}: {reason}"
    expected = lines_of((example / "expected.txt").read_text())
    if not expected:
        return "expected.txt is empty"
    printed = lines_of(result.stdout)[-len(expected):]
    if len(printed) < len(expected):
        return f"run.sh printed {len(printed)} lines, and expected.txt has {len(expected)}"
    for number, (wanted, got) in enumerate(zip(expected, printed), start=1):
        reason = difference(wanted, got, tolerance)
        if reason:
            return f'line {number} of expected.txt is "{wanted}", and run.sh printed "{got}": {reason}'
    return None


def environment_of(folder):
    """The environment of run.sh: programs of folder/bin come first, and LAUNCH is that of ctest unless it is given."""
    found = {**OPEN_MPI, **os.environ, "ORTHANT_ROOT": str(EXAMPLES.parent)}
    found["PATH"] = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    launch = found.get("LAUNCH") or found.get("ORTHANT_MPIRUN")
    if launch:
        found["LAUNCH"] = launch
    return found


def run(example, program, arguments):
    """Runs one example; True if it prints what is expected."""
    with tempfile.TemporaryDirectory(prefix=f"orthant-{example.name}-") as folder:
        folder = pathlib.Path(folder)
        (folder / "bin").mkdir()
        (folder / "bin" / "orthant").symlink_to(program)
        (folder / "run").mkdir()
        begin = time.monotonic()
        try:
            result = subprocess.run(["bash", example / "run.sh"], cwd=folder / "run", env=environment_of(folder), text=True,
                                    stdin=subprocess.DEVNULL, capture_output=True, timeout=arguments.timeout)
            reason = fault(example, result, arguments.tolerance)
        except subprocess.TimeoutExpired:
            reason = f"run.sh took longer than {arguments.timeout:g} seconds"
    if arguments.print and reason is None:
        print(result.stdout, end="")
    seconds = time.monotonic() - begin
    print(f"{example.name}: {'as expected' if reason is None else reason} ({seconds:.0f} s)", flush=True)
    return reason is None


def main():
    examples = {path.parent.name: path.parent for path in sorted(EXAMPLES.glob("*/run.sh"))}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="examples to run (default: all)")
    parser.add_argument("--orthant", metavar="PATH", help="the program (default: orthant of PATH)")
    parser.add_argument("--tolerance", type=float, default=0.05, metavar="R", help="relative tolerance of numbers (0.05)")
    parser.add_argument("--timeout", type=float, default=300, metavar="SECONDS", help="time limit of an example (300)")
    parser.add_argument("--print", action="store_true", help="show what the examples print")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name.strip("/") not in examples]
    if unknown:
        parser.error(f"no example is named {unknown[0]}; there are {', '.join(examples)}")
    program = shutil.which(arguments.orthant or "orthant")
    if not program:
        parser.error(f"{arguments.orthant or 'orthant'} is not a program; name it with --orthant PATH")
    program = pathlib.Path(program).resolve()
    chosen = [examples[name.strip("/")] for name in arguments.names] or list(examples.values())
    results = [run(example, program, arguments) for example in chosen]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
