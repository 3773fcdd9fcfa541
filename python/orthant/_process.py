# SPDX-License-Identifier: Apache-2.0
"""Starts the program, on one or several ranks, waits for it, and passes Ctrl-C on."""
import functools
import os
import shlex
import shutil
import signal
import subprocess
import threading
from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Sequence, Union

from ._errors import Error, UsageError, error_line

Launcher = Union[None, str, Sequence[str]]

STOPPED_WITH_CHECKPOINT = 75
# A training without checkpoints that a signal stopped after an epoch ends with 128 and the number of the signal.
STOPPED = (STOPPED_WITH_CHECKPOINT, 128 + signal.SIGINT, 128 + signal.SIGUSR1)
# These forward SIGUSR1 to all ranks, also on other nodes; at SIGINT they kill the ranks after a short time.
_FORWARD_SIGUSR1 = ("mpirun", "mpiexec", "orterun", "prterun", "srun")
_WARNING = "orthant: warning: "


@dataclass
class Completed:
    """What a finished command left behind."""

    command: List[str]
    status: int
    output: str
    log: str
    interrupted: bool

    def check(self) -> "Completed":
        """Raises KeyboardInterrupt, UsageError or Error unless the command succeeded."""
        if self.status == 0:
            return self
        if self.interrupted:
            raise KeyboardInterrupt
        kind = UsageError if self.status == 2 else Error
        raise kind(error_line(self.log) or error_line(self.output), self.status, self.log)


def launch_prefix(ranks: Optional[int], launcher: Launcher) -> List[str]:
    """The words before the program: empty for one rank, a launcher of MPI otherwise."""
    if launcher is not None:
        words = shlex.split(launcher) if isinstance(launcher, str) else list(launcher)
        return [word.replace("{ranks}", str(ranks)) for word in words]
    if ranks is None or ranks == 1:
        return []
    if ranks < 1:
        raise ValueError(f"ranks is {ranks}; it must be 1 or more")
    if os.environ.get("SLURM_JOB_ID") and shutil.which("srun"):
        return ["srun", "-n", str(ranks)]
    mpirun = shutil.which("mpirun") or shutil.which("mpiexec")
    if mpirun is None:
        raise FileNotFoundError("cannot find mpirun; load a module of MPI, or pass launcher='COMMAND -n {ranks}'")
    words = [mpirun, "-n", str(ranks)]
    if ranks > num_cores() and _is_open_mpi(mpirun):
        words += ["--oversubscribe", "--bind-to", "none"]
    return words


def num_cores() -> int:
    """Physical cores that this process may use, because Open MPI counts these as slots."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            lines = [line.split(":")[-1].strip() for line in file if line.startswith(("physical id", "core id"))]
    except OSError:
        return allowed
    physical = len(set(zip(lines[0::2], lines[1::2])))
    return min(allowed, physical or allowed)


@functools.lru_cache(maxsize=None)
def _is_open_mpi(mpirun: str) -> bool:
    result = subprocess.run([mpirun, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            check=False)
    return "Open MPI" in result.stdout or "open-mpi" in result.stdout


def execute(command: List[str], poll: Optional[Callable[[], None]] = None,
            warn: Optional[Callable[[str], None]] = None) -> Completed:
    """Runs `command`. Calls `poll` a few times per second, and at the end `warn` with each warning on stderr.

    The command has a session of its own, so a terminal's Ctrl-C reaches Python alone, which passes it on: the first
    one asks the program to stop in good order, the second one to end at once, the third one kills it.
    """
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, errors="replace", start_new_session=True)
    output: List[str] = []
    log: List[str] = []

    # A reader must not stop before the end of its pipe, or the command blocks: it calls nothing that may raise.
    def read(pipe: Any, lines: List[str]) -> None:
        with pipe:
            lines.extend(pipe)

    readers = [threading.Thread(target=read, args=pair, daemon=True)
               for pair in ((process.stdout, output), (process.stderr, log))]
    for reader in readers:
        reader.start()
    interrupts = 0
    try:
        while True:
            try:
                process.wait(0.2 if poll is not None else None)
                break
            except subprocess.TimeoutExpired:
                pass
            except KeyboardInterrupt:
                interrupts += 1
                _interrupt(process, command, interrupts)
            if poll is not None:
                try:
                    poll()
                except KeyboardInterrupt:
                    interrupts += 1
                    _interrupt(process, command, interrupts)
    finally:
        if process.poll() is None:
            _send_to_group(process, signal.SIGKILL)
            process.wait()
    for reader in readers:
        reader.join(5)
    if poll is not None:
        poll()
    if warn is not None:
        for line in log:
            if line.startswith(_WARNING):
                warn(line[len(_WARNING):].strip())
    status = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return Completed(command, status, "".join(output), "".join(log), interrupts > 0)


def _interrupt(process: "subprocess.Popen[str]", command: List[str], count: int) -> None:
    if count == 1 and os.path.basename(command[0]) in _FORWARD_SIGUSR1:
        process.send_signal(signal.SIGUSR1)
    else:
        _send_to_group(process, {1: signal.SIGINT, 2: signal.SIGTERM}.get(count, signal.SIGKILL))


def _send_to_group(process: "subprocess.Popen[str]", number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass
