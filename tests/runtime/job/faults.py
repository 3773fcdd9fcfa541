#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Jobs that go wrong, and what they must say: faults.py PROGRAM watchdog|exit|start TOOL. Each job runs fault_program under
# mpirun (TOOL: a Kokkos tool that aborts); the exit status, the text and the end itself (within `limit` seconds) are
# checked. The jobs mostly sleep, so several run at once.

import concurrent.futures
import contextlib
import glob
import os
import re
import signal
import subprocess
import sys
import time

PROGRAM = sys.argv[1]
os.environ["ORTHANT_TEST_TOOL"] = sys.argv[3]
MPIRUN = os.environ["ORTHANT_MPIRUN"].split()
LIMIT = 60  # seconds after which a job counts as hung
MOST_SECONDS_AFTER_DEATH = 5


def children_of(process):
    """Of a process and all its threads, those that have not ended."""
    states = {}
    for path in glob.glob(f"/proc/{process}/task/*/children"):
        with contextlib.suppress(OSError), open(path, encoding="ascii") as file:
            for child in file.read().split():
                with contextlib.suppress(OSError), open(f"/proc/{child}/stat", encoding="utf-8") as stat:
                    states[child] = stat.read().rpartition(")")[2].split()[0]
    return {child: state for child, state in states.items() if state != "Z"}


class Case:
    def __init__(self, ranks, arguments, status, expected, forbidden=(), errors=1, fault=None):
        self.ranks, self.arguments, self.status = ranks, arguments.split(), status
        self.expected, self.forbidden, self.errors, self.fault = expected, forbidden, errors, fault

    def name(self):
        return f"{' '.join(self.arguments)} on {self.ranks}" + (f" with fault {self.fault}" if self.fault else "")

    def run(self, may_hang=True):
        command = MPIRUN + [str(self.ranks), PROGRAM] + self.arguments
        environment = dict(os.environ, ORTHANT_TEST_FAULT=self.fault) if self.fault else None
        start = time.monotonic()
        launcher = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                    text=True, env=environment)
        left = None  # of a job that hangs: the processes that have not ended
        try:
            output, errors = launcher.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            left = children_of(launcher.pid)
            for process in (*left, launcher.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
            output, errors = launcher.communicate()
        seconds = time.monotonic() - start
        text = output + errors
        problems = []
        # Open MPI 4.1's launcher may crash in its own shutdown once it has killed a job with a stopped rank, or hang in it, as on a disk that
        # does not answer when it removes its folder. No rank is left then. A job whose launcher has hung is started once more.
        has_crashed = launcher.returncode == -signal.SIGSEGV and re.search(r"PMIx_server_finalize.*\n(.*\n)*.*/mpi(exec|run)\(", text)
        if left == {} and may_hang:
            print(f"once more: {self.name()}: its launcher hung when no rank was left", flush=True)
            return self.run(may_hang=False)
        if left is not None:
            problems.append(f"still running after {LIMIT} s: {left}")
        elif launcher.returncode != self.status and not (self.status != 0 and has_crashed):
            problems.append(f"status {launcher.returncode}, not {self.status}")
        problems += [f"lacks /{p}/" for p in self.expected if not re.search(p, text)]
        problems += [f"has /{p}/" for p in self.forbidden if re.search(p, text)]
        if died := re.search(r"^dies at ([\d.]+)$", text, re.M):
            after = time.time() - float(died.group(1))
            if after > MOST_SECONDS_AFTER_DEATH:
                problems.append(f"ended {after:.1f} s after a rank had died")
        errors = len(re.findall(r"^orthant: error: ", text, re.M))
        if self.errors is not None and errors != self.errors:
            problems.append(f"{errors} lines of error, not {self.errors}")
        print(f"{'FAIL' if problems else 'ok  '} {self.name()} ({seconds:.1f} s)", flush=True)
        return f"{self.name()}: {'; '.join(problems)}\n{text}" if problems else None


HEAD = r"no progress in a collective for 3 s; ending the job"
WATCHDOG = [
    Case(4, "sleep 1", 1, [HEAD, r"ranks 0,2-3: waiting \d+\.\d s in all_reduce on axis world \(number 1, 4000 bytes\) at "
                           r"fault_program\.cpp:\d+", r"rank 1: not arrived; left barrier on axis world \(number 0"]),
    Case(3, "sleep 0", 1, [HEAD, r"rank 0: not arrived; left barrier"]),
    Case(3, "stop 1", 1, [r"rank 0 of 3 reports", r"rank 1: not arrived; does not answer", r"ranks 0,2: waiting .* barrier"]),
    Case(3, "stop 0", 1, [r"rank 1 of 3 reports", r"rank 0: not arrived; does not answer", r"ranks 1-2: waiting .* barrier"]),
    Case(4, "mismatch 2", 1, [r"ranks 0-1,3: waiting .* all_reduce on axis world", r"rank 2: waiting .* barrier on axis Y",
                              r"do not call the same operations"]),
    Case(4, "arrivals 1", 1, [HEAD, r"ranks 0,2-3: waiting \d+\.\d s in all_reduce .*; rank [02] arrived first, rank 3 last, [12]\.\d s later",
                              r"rank 1: not arrived; left barrier"]),
    Case(2, "receive 1", 1, [r"rank 0: waiting .* receive on axis world", r"rank 1: waiting .* end of the program"]),
    Case(2, "wait 0", 1, [r"rank 1: waiting .* all_reduce", r"rank 0: not arrived; has been in no collective yet"]),
    Case(2, "scope 0", 1, [r"rank 1: waiting .* bare barrier", r"rank 0: not arrived"]),
    Case(2, "sleep 1 funneled", 1, [r"warning: MPI gives MPI_THREAD_", r"rank 0: waiting .* all_reduce"]),
    Case(3, "late 1", 0, [], errors=0),
    Case(3, "arrive 1", 0, [], errors=0, fault="probe 1200 2"),
    Case(3, "work 0", 0, [], errors=0),
    Case(2, "work-scope 1", 0, [], errors=0),
    Case(2, "work-two 0", 0, [], errors=0),
    Case(3, "work-sleep 0", 1, [HEAD, r"ranks 1-2: waiting .* all_reduce", r"rank 0: not arrived; works by itself at "
                                r"fault_program\.cpp:\d+, but has used no processor"]),
    Case(3, "work-stop 1", 1, [r"rank 1: not arrived; does not answer", r"ranks 0,2: waiting .* all_reduce"]),
    Case(3, "work-mismatch 0", 1, [r"ranks 0-1: waiting .* all_reduce", r"rank 2: waiting .* barrier on axis Y",
                                   r"do not call the same operations"]),
    Case(2, "fine", 0, [], [r"warning"], errors=0),
]
EXIT = [
    Case(4, "throw 2", 1, [r"orthant: error: rank 2: the dog ate my gradients"], [HEAD]),
    Case(2, "throw 0", 1, [r"orthant: error: rank 0: the dog ate my gradients"], [HEAD]),
    Case(1, "throw 0", 1, [r"orthant: error: the dog ate my gradients"]),
    Case(2, "require 1", 1, [r"orthant: error: rank 1: fault_program\.cpp:\d+: required: .*; culprit is 1"]),
    Case(3, "user 1", 2, [r"orthant: error: rank 1: no such graph; try karate"]),
    Case(4, "user-all", 2, [r"orthant: error: no such graph; try karate"], [r"MPI_ABORT"]),
    Case(1, "user-all", 2, [r"orthant: error: no such graph; try karate"]),
    Case(3, "require-all", 1, [r"orthant: error: fault_program\.cpp:\d+: required: "], [r"MPI_ABORT"]),
    Case(4, "differ", 2, [r"error: rank 0: part 0 is bad", r"error: rank 2: part 1 is bad"], [r"MPI_ABORT"], errors=2),
    Case(3, "some 2", 2, [r"orthant: error: rank 2: only mine"], [r"MPI_ABORT"]),
    Case(2, "terminate 1", 1, [r"orthant: error: rank 1: thrown where nothing may be thrown"]),
    Case(2, "status", 75, [], errors=0),
    Case(3, "die-shared 1", 137, [r"dies at"], errors=0),
    Case(3, "die-rounds 1", 137, [r"dies at"], errors=0),
    Case(3, "die-mpi 1", 137, [r"dies at"], errors=0),
    Case(3, "die-encoded 0", 137, [r"dies at"], errors=0),
    Case(2, "out-of-memory 1", 1, [r"orthant: error: rank 1: Kokkos .*failed to allocate"], [r"[Tt]raceback"]),
    Case(2, "abort 1", 2, [r"orthant: error: rank 1: Kokkos does not start: .*KOKKOS_NUM_THREADS"], [r"Raised by", r"[Tt]raceback"]),
    Case(2, "abort-tool 1", 1, [r"orthant: error: rank 1: Kokkos does not start: no device is free\n"]),
    Case(2, "fine --kokkos-num-threads=abc", 2, [r"error: --kokkos-num-threads: 'abc' must be a whole number of at least 1"]),
    Case(2, "fine --kokkos-thread=2", 2, [r"error: --kokkos-thread is not an option of Kokkos; did you mean '--kokkos-threads'"]),
    Case(2, "fine --kokkos-device-id=99", 2, [r"error: --kokkos-device-id=99: there (is|are) .* devices? here"]),
    Case(2, "fine --kokkos-num-threads=1 --kokkos-disable-warnings", 0, [], errors=0),
    Case(2, "end 1", 1, [r"orthant: error: rank 1: thrown where nothing may be thrown"]),
    Case(1, "end 0", 1, [r"orthant: error: rank 0: thrown where nothing may be thrown"]),
]
# Failures before the program's own part begins. Ranks that fail alike print once and leave as one.
START = [
    Case(2, "fine", 1, [r"orthant: error: rank 1: .*MPI_Comm_dup.* failed"], [HEAD], fault=f"dup {n} 1") for n in (1, 2, 3)
] + [
    Case(2, "fine", 1, [r"orthant: error: rank 0: .*MPI_Comm_size.* failed"], [HEAD], fault="size 1 0"),
    Case(2, "fine", 1, [r"orthant: error: rank 0: the watchdog's thread cannot be started: Resource temporarily"],
         [HEAD], fault="thread 1 0"),
    Case(2, "fine", 1, [r"orthant: error: .*MPI_Init_thread.* failed"], fault="init 1 1"),
    Case(3, "fine", 1, [r"orthant: error: .*MPI_Comm_dup.* failed"], [r"MPI_ABORT", r"error: rank"], fault="dup 1 -1"),
    Case(1, "fine", 1, [r"orthant: error: .*MPI_Comm_dup.* failed"], [r"MPI_ABORT"], fault="dup 2 0"),
    Case(3, "fine", 1, [r"orthant: error: .*the watchdog's thread cannot be started"], [r"MPI_ABORT", r"error: rank"],
         fault="thread 1 -1"),
] + [
    Case(2, "status", 1, [r"orthant: error: rank 1: std::bad_alloc"], [HEAD], fault=f"new {n} 1") for n in (1, 3, 6, 10, 15)
]


def main():
    cases = {"watchdog": WATCHDOG, "exit": EXIT, "start": START}[sys.argv[2]]
    with concurrent.futures.ThreadPoolExecutor(4 if sys.argv[2] == "watchdog" else 2) as pool:
        failures = [failure for failure in pool.map(Case.run, cases) if failure]
    for failure in failures:
        print("\n" + failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
