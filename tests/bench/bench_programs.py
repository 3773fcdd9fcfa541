# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of a comparison, and tells the user's mistakes from what goes wrong by itself."""

from __future__ import annotations

import argparse
import pathlib
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable


class Mistake(Exception):
    """What the user got wrong, in one line: status 2."""


class Failure(Exception):
    """What went wrong by itself: status 1."""


def output_of(command: list, environment: dict[str, str] | None = None) -> str:
    """What the program prints. Orthant's one line of status 2 becomes ours."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=environment)
    except OSError as error:
        raise Mistake(f"cannot run {words[0]}: {error.strerror}") from None
    if done.returncode == 0:
        return done.stdout
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    said = next((line for line in lines if "error: " in line), lines[-1] if lines else "nothing on stderr").strip()
    if done.returncode == 2:
        raise Mistake(said.replace("error: ", ""))
    raise Failure(f"status {done.returncode} of {shlex.join(words)}: {said}")


def job(options: argparse.Namespace, *arguments, before: list | None = None) -> list:
    return [*options.mpirun, options.ranks, *(before or []), options.orthant, *arguments]


def alone(options: argparse.Namespace, *arguments) -> list:
    return [options.orthant, *arguments]


def main(name: str, parse_options: Callable, run_in: Callable) -> int:
    """run_in(options, folder) of --work, or of a folder that is gone afterwards. Returns the exit status."""
    try:
        options = parse_options(sys.argv[1:])
        if options.work:
            options.work.mkdir(parents=True, exist_ok=True)
            run_in(options, options.work)
        else:
            with tempfile.TemporaryDirectory(prefix=f"{name}-") as work:
                run_in(options, pathlib.Path(work))
    except (Mistake, OSError) as mistake:
        print(f"{name}.py: {mistake}", file=sys.stderr)
        return 2
    except Failure as failure:
        print(f"{name}.py: {failure}", file=sys.stderr)
        return 1
    return 0
