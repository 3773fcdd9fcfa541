# SPDX-License-Identifier: Apache-2.0
"""Runs entries of a list of tests (test_list.py), several at a time, as ctest would."""
import concurrent.futures
import dataclasses
import re
import threading

import jobs


@dataclasses.dataclass
class Result:
    name: str
    result: str  # passed, failed, skipped or cut
    reason: str
    seconds: float
    log: str


class Cores:
    """Lets tests in while the ranks of those that run fit the machine's cores; one larger than that runs alone."""

    def __init__(self, count):
        self._count = self._free = count
        self._changed = threading.Condition()

    def take(self, ranks):
        ranks = min(ranks, self._count)
        with self._changed:
            self._changed.wait_for(lambda: self._free >= ranks)
            self._free -= ranks
        return ranks

    def give_back(self, ranks):
        with self._changed:
            self._free += ranks
            self._changed.notify_all()


def skip_reason(text):
    """What GoogleTest says after 'Skipped', else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line, following in zip(lines, lines[1:]):
        if re.search(r":[0-9]+: Skipped$", line):
            return following
    return lines[-1] if lines else "no reason was given"


def judge(test, done, seconds):
    if done.timed_out:
        return ("failed", f"still running after {seconds:.0f} s") if seconds >= test["seconds"] else ("cut", "no time left")
    is_skipped = (test["skip_status"] is not None and done.status == test["skip_status"]) or any(
        re.search(pattern, done.output) for pattern in test["skip_text"])
    if is_skipped:
        return "skipped", skip_reason(done.output)
    if done.status != 0:
        return "failed", f"status {done.status}"
    return "passed", ""


def run_tests(tests, command_of, environment_of, clock, cores, logs):
    """Longest limits first. A test that no time is left for is cut."""
    free = Cores(cores)

    def run(test):
        taken = free.take(test["ranks"])
        try:
            limit = min(test["seconds"], clock.left())
            if limit <= 1:
                return Result(test["name"], "cut", "no time left", 0.0, "")
            log = logs / f"{test['name']}.log"
            done = jobs.run(command_of(test), environment_of(test), limit, log)
            result, reason = judge(test, done, limit)
            return Result(test["name"], result, reason, done.seconds, done.output)
        finally:
            free.give_back(taken)

    ordered = sorted(tests, key=lambda test: -test["seconds"])
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(cores, 1)) as pool:
        return sorted(pool.map(run, ordered), key=lambda result: result.name)
