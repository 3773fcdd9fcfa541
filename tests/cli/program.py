# SPDX-License-Identifier: Apache-2.0
"""Runs the program, on one rank without mpirun and on several with it, and says what is wrong with its answer."""

import concurrent.futures
import json
import os
import re
import subprocess
import sys

PROGRAM = sys.argv[1]
MPIRUN = os.environ["ORTHANT_MPIRUN"].split()
LIMIT = 90  # seconds after which a run counts as hung
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("ORTHANT_")}


class Failure(Exception):
    pass


def run(ranks, arguments, **variables):
    command = ([] if ranks == 1 else MPIRUN + [str(ranks)]) + [PROGRAM] + arguments
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=LIMIT,
                              env=ENVIRONMENT | variables)
    except subprocess.TimeoutExpired as hung:
        raise Failure(f"still running after {LIMIT} s\n{hung.stdout}\n{hung.stderr}") from None


def require(condition, what, done):
    if not condition:
        raise Failure(f"{what}; status {done.returncode}\nstdout: {done.stdout}\nstderr: {done.stderr}")


def expect_success(ranks, arguments, **variables):
    done = run(ranks, arguments, **variables)
    require(done.returncode == 0, "does not end well", done)
    require("orthant: error" not in done.stderr, "speaks of an error", done)
    return done


def expect_mistake(ranks, arguments, pattern, **variables):
    """One line, status 2, ranks that leave by themselves."""
    done = run(ranks, arguments, **variables)
    require(done.returncode == 2, "is no mistake of status 2", done)
    errors = re.findall(r"^orthant: error: (.*)$", done.stderr, re.M)
    require(len(errors) == 1, f"{len(errors)} lines of error, not one", done)
    require(re.search(pattern, errors[0]), f"lacks /{pattern}/", done)
    require("MPI_ABORT" not in done.stderr, "was aborted", done)
    require(done.stdout == "", "prints to stdout", done)


def bench_lines(ranks, arguments, of="collectives", **variables):
    done = expect_success(ranks, ["bench", of] + arguments, **variables)
    try:
        return [json.loads(line) for line in done.stdout.splitlines()]
    except json.JSONDecodeError as error:
        raise Failure(f"not JSON: {error}\n{done.stdout}") from None


def attempt(job):
    ranks, (function, *arguments) = job
    name = f"{function.__name__} {' '.join(map(str, arguments[:1]))} on {ranks}"
    try:
        function(ranks, *arguments)
    except Failure as failure:
        return f"FAIL {name}: {failure}"
    print(f"ok   {name}", flush=True)
    return None


def attempt_all(jobs):
    """Returns the exit status."""
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        failures = [failure for failure in pool.map(attempt, jobs) if failure]
    print("\n".join(failures))
    return 1 if failures else 0


def run_part(*parts):
    """Runs that of the functions which the second argument of the command line names; the exit status."""
    name = sys.argv[2]
    try:
        {part.__name__: part for part in parts}[name](None)
    except Failure as failure:
        print(f"FAIL {name}: {failure}")
        return 1
    return 0
