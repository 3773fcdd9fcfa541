# SPDX-License-Identifier: Apache-2.0
"""Processes with a time limit, and the time that is left for all of them together."""
import dataclasses
import os
import pathlib
import signal
import subprocess
import time

ENDS_WITHIN = 5  # seconds that a job which was asked to end may take


class Clock:
    """Time since the start, and what is left of the limit. A limit of 0 is none."""

    def __init__(self, limit):
        self._start = time.monotonic()
        self._limit = limit

    def passed(self):
        return time.monotonic() - self._start

    def left(self):
        return self._limit - self.passed() if self._limit else float("inf")


@dataclasses.dataclass
class Done:
    status: int  # as subprocess has it
    seconds: float
    output: str  # stdout and stderr together
    timed_out: bool = False


def _of_session(leader):
    """The processes of the session that `leader` began; mpirun gives each rank a process group of its own."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue
        if int(fields[3]) == leader:
            found.append(int(folder.name))
    return found


def _end(process):
    for wanted in (signal.SIGTERM, signal.SIGKILL):
        for pid in _of_session(process.pid):
            try:
                os.kill(pid, wanted)
            except OSError:
                pass
        try:
            process.wait(ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            pass


def run(command, environment, seconds, log):
    """Runs it with its output in the file `log`; at the limit, ends the job with all of its ranks."""
    begin = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    timed_out = False
    with open(log, "wb") as file:
        try:
            process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=file,
                                       stderr=subprocess.STDOUT, env=environment, start_new_session=True)
        except OSError as error:
            file.write(f"cannot run {command[0]}: {error.strerror}\n".encode())
            process = None
        if process is not None:
            try:
                process.wait(None if seconds == float("inf") else max(seconds, 0.1))
            except subprocess.TimeoutExpired:
                timed_out = True
                _end(process)
    output = log.read_bytes().decode(errors="replace")
    return Done(127 if process is None else process.returncode, time.monotonic() - begin, output, timed_out)
