#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program at a terminal: terminal.py PROGRAM

On a pseudo-terminal: Ctrl-C on 1 and 4 ranks ends the epoch, saves what was asked for and says how to go on; a second one ends at
once. Progress on 40, 80 and 160 columns, in files and under mpirun. A terminal's screen is worked out from what was printed.
"""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import tempfile
import termios
import time

from program import ENVIRONMENT, Failure, LIMIT, MPIRUN, PROGRAM, attempt_all, expect_success, require

DATA = ["--dataset", "sbm:vertices=1000,edges=8000,features=16,classes=4", "--hidden", "16", "--seed", "3"]
ENDLESS = ["train", *DATA, "--epochs", "100000000", "--eval-every", "50"]
# At Ctrl-C mpirun waits a second, sends SIGTERM, and kills its ranks another second later: too short on a busy machine.
PATIENT = {"OMPI_MCA_odls_base_sigkill_timeout": "5"}
# Nor does it read what they print meanwhile: a rank that prints 1,000 lines a second fills the pipe, and waits until it is killed.
QUIET = ["--log-every", "50"]


class Terminal:
    """A job on a terminal of its own, in the foreground of a new session, as at a shell."""

    def __init__(self, command, columns=80, **variables):
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            os.execvpe(command[0], command, ENVIRONMENT | {"TERM": "xterm"} | variables)
        self.printed = b""
        self.status = None

    def read(self, until):
        """Reads until `until()` or the job's end."""
        end = time.monotonic() + LIMIT
        while not until():
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                raise Failure(f"hangs: {self.printed[-2000:]}")
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    piece = os.read(self.master, 1 << 16)
                except OSError:  # the other side is closed
                    piece = b""
                if not piece:
                    return
                self.printed += piece

    def press_ctrl_c(self):
        os.write(self.master, b"\x03")

    def wait(self):
        """The text, and the status as a shell has it."""
        self.read(lambda: False)
        _, status = os.waitpid(self.pid, 0)
        os.close(self.master)
        self.status = os.waitstatus_to_exitcode(status)
        return self.printed.decode(errors="replace")


def screen_of(text):
    """The lines that a terminal shows in the end."""
    lines = []
    for line in text.replace("\r\n", "\n").split("\n"):
        shown = ""
        for piece in line.split("\r"):
            cleared = piece.split("\033[K")
            shown = cleared[0] + shown[len(cleared[0]):] if len(cleared) == 1 else cleared[0]
            shown += cleared[1] if len(cleared) > 1 else ""
        lines.append(shown)
    return lines


def check(condition, what, text):
    if not condition:
        raise Failure(f"{what}:\n{text}")


def events_of(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def interrupted(ranks, scratch, arguments, presses=1):
    metrics = os.path.join(scratch, "m.jsonl")
    command = ([] if ranks == 1 else MPIRUN + [str(ranks)]) + [PROGRAM] + ENDLESS + arguments + ["--metrics", metrics]
    command += [] if ranks == 1 else QUIET
    job = Terminal(command, **PATIENT)
    job.read(lambda: len(events_of_safe(metrics)) > 60)
    if presses == 2:  # both at once: nothing in between
        os.kill(job.pid, signal.SIGSTOP)
        os.kill(job.pid, signal.SIGINT)
        os.kill(job.pid, signal.SIGTERM)
        os.kill(job.pid, signal.SIGCONT)
    else:
        job.press_ctrl_c()
    return job, job.wait(), events_of_safe(metrics)


def events_of_safe(path):
    """Without a last line that is still being written."""
    try:
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file.read().split("\n")[:-1] if line]
    except FileNotFoundError:  # not yet made; or made to see that it can be, and removed until there is a line
        return []


def ctrl_c(ranks):
    """The weights of the last whole epoch and those of the best are there, and the summary names the best."""
    with tempfile.TemporaryDirectory() as scratch:
        weights = os.path.join(scratch, "w.h5")
        job, text, events = interrupted(ranks, scratch, ["--save-weights", weights])
        stopped, epochs = events[-1], [event for event in events if event["event"] == "epoch"]
        check(stopped["event"] == "stopped" and stopped["step"] == 0, f"metrics end in {stopped}", text)
        check(stopped["epoch"] == epochs[-1]["epoch"] + 1, f"{len(epochs)} epochs, then {stopped}", text)
        signals = {"SIGINT": 130, "SIGTERM": 143}  # mpirun sends the latter
        check(stopped["reason"] in (["SIGINT"] if ranks == 1 else list(signals)), f"reason {stopped}", text)
        check(job.status == signals[stopped["reason"]] or ranks > 1 and job.status == 1, f"status {job.status}", text)
        evaluated = [event for event in epochs if "val_acc" in event]
        best = max(evaluated, key=lambda event: (event["val_acc"], -event["epoch"]))
        check(f"best (epoch {best['epoch']})" in text, f"does not name the best epoch, {best['epoch']}", text)
        check("--init-from " in text and "the weights are saved" in text, "does not say how to go on", text)
        check(ranks > 1 or "once more ends it at once" in text, "does not answer", text)
        for path in (weights, weights.replace(".h5", "-best.h5")):
            check("layer0.weight" in expect_success(1, ["info", path]).stdout, f"{path} is no weights file", text)
        # They are those of the last epoch: one that goes on from them is better than a new one.
        onward = os.path.join(scratch, "on.jsonl")
        expect_success(1, ["train", *DATA, "--epochs", "1", "--dropout", "0", "--init-from", weights, "--metrics", onward])
        check(events_of(onward)[1]["loss"] < events[1]["loss"], "the weights are not trained", text)


def ctrl_c_with_checkpoints(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        folder, weights = os.path.join(scratch, "c"), os.path.join(scratch, "w.h5")
        job, text, events = interrupted(ranks, scratch, ["--checkpoint", folder, "--save-weights", weights])
        check(job.status == 75 or ranks > 1 and job.status == 1, f"status {job.status}", text)  # mpirun's own is 1
        check("best (epoch " in text and "--resume auto" in text, "summary", text)
        check(events[-1]["event"] == "stopped", f"metrics end in {events[-1]}", text)
        latest = os.path.join(folder, "latest")
        described = expect_success(1, ["info", latest]).stdout
        check(f"epoch {events[-1]['epoch']}, step 1;" in described and "layer0.weight" in described, f"info says {described}", text)
        if events[-1]["reason"] == "SIGINT":
            check(os.path.exists(weights), "saves no weights", text)


def two_at_once(_):
    with tempfile.TemporaryDirectory() as scratch:
        weights = os.path.join(scratch, "w.h5")
        job, text, events = interrupted(1, scratch, ["--save-weights", weights], presses=2)
        check(job.status in (-signal.SIGINT, -signal.SIGTERM), f"status {job.status}", text)
        check(not os.path.exists(weights) and events[-1]["event"] == "epoch", "goes on", text)


def twice(ranks):
    """A second Ctrl-C at the terminal, within an epoch of seconds, ends the job then and there: no epoch more, and no weights."""
    with tempfile.TemporaryDirectory() as scratch:
        weights, metrics = os.path.join(scratch, "w.h5"), os.path.join(scratch, "m.jsonl")
        command = ["train", "--dataset", "sbm:vertices=16000,edges=160000,features=64,classes=4", "--hidden", "768", "--layers", "8",
                   "--epochs", "1000", "--save-weights", weights, "--metrics", metrics]
        job = Terminal(([] if ranks == 1 else MPIRUN + [str(ranks)]) + [PROGRAM] + command, **PATIENT)
        job.read(lambda: len(events_of_safe(metrics)) > 1)
        job.press_ctrl_c()
        if ranks == 1:
            job.read(lambda: b"once more ends it at once" in job.printed)
        else:  # mpirun, which has the terminal, is asked twice itself before it ends at once, and takes two at a time for one
            for _ in range(100):
                job.press_ctrl_c()
                end = time.monotonic() + 0.1
                job.read(lambda: b"hit ctrl-c again" in job.printed or time.monotonic() > end)
                if b"hit ctrl-c again" in job.printed:
                    break
        job.press_ctrl_c()
        text = job.wait()
        events = events_of_safe(metrics)
        check(job.status != 0 and (ranks > 1 or job.status == -signal.SIGINT), f"status {job.status}", text)
        check(events[-1]["event"] == "epoch" and not os.path.exists(weights), f"goes on to {events[-1]}", text)
        check("stopped by" not in text, "ends its epoch", text)


def widths(_):
    """No line is wider than the terminal; the loss is always there, the scores of the last evaluation as far as they fit."""
    command = [PROGRAM, "train", *DATA, "--epochs", "30", "--eval-every", "10", "--roc-auc"]
    for columns in (40, 80, 160):
        job = Terminal(command, columns)
        text = job.wait()
        check(job.status == 0, f"status {job.status}", text)
        drawn = [piece.split("\033[K")[0] for piece in text.split("\r") if piece.startswith("epoch ")]
        check(drawn and max(map(len, drawn)) < columns, f"{columns} columns: {drawn}", text)
        check(all(re.match(r"epoch +\d+/30( \[[#-]{20}\])? loss \d", line) for line in drawn), f"loss first: {drawn}", text)
        for evaluated in (10, 20, 30):
            line = next((line for line in drawn if re.match(rf"epoch +{evaluated}/30", line)), None)
            check(line is not None and re.search(r"valid [01]\.", line), f"{columns} columns: epoch {evaluated} is {line}", text)
        last = [line for line in screen_of(text) if line.startswith("epoch ")][-1]
        # The table of scores is within the narrowest one.
        table = re.findall(r"^(?:accuracy .*|last epoch.*|best \(.*|  macro-F1.*|  ROC-AUC.*)$", "\n".join(screen_of(text)), re.M)
        check(len(table) == 7 and max(map(len, table)) < 40, f"{columns} columns: {table}", text)
        check(("[####" in last) == (columns >= 80) and ("  test " in last) == (columns >= 80), f"{columns} columns: {last}", text)


def plain_lines(ranks):
    """In files and under mpirun: lines of --log-every epochs, and of every evaluated one."""
    base = ["train", *DATA, "--epochs", "20", "--eval-every", "8"]
    for arguments, epochs in (([], range(1, 21)), (["--log-every", "6"], [6, 8, 12, 16, 18, 20]), (["--log-every", "100"], [8, 16, 20]),
                              (["--log-level", "off"], []), (["--log-level", "warning", "--log-every", "2"], [])):
        done = expect_success(ranks, base + arguments)
        found = [int(number) for number in re.findall(r"^epoch +(\d+)/20  loss", done.stderr, re.M)]
        require(found == list(epochs) and "\033" not in done.stderr + done.stdout, f"epochs {found}", done)
        require("best (epoch" in done.stdout, "results", done)


def decisions(ranks):
    """--log-level debug says what was decided, and why."""
    for extra, patterns in (([], [r"grid \S+: --grid auto takes", r"schedule \w+: an epoch takes"]),
                            (["--schedule", "rows", "--order", "transform", "--grid", f"1x{ranks}x1x1"],
                             [r"grid 1x\dx1x1: --grid asks", "schedule rows: --schedule asks", r"layer 0 .*--order asks", "gather auto: needed rows"])):
        done = expect_success(ranks, ["train", *DATA, "--epochs", "1", "--log-level", "debug", *extra])
        for pattern in patterns + [r"layer 2 \(16 to 4 columns\): \w+ first, so A\^ is multiplied by \d+ columns", "overlap auto: ", "kernels: .*dense products by"]:
            require(re.search(f"^orthant: debug: {pattern}", done.stderr, re.M), f"lacks /{pattern}/", done)
    for overlap, where in (("on", "ahead, on a second thread"), ("off", "in line")):
        done = expect_success(ranks, ["train", *DATA, "--epochs", "1", "--mode", "minibatch", "--overlap", overlap, "--log-level", "debug"])
        require(f"debug: batches are sampled {where}" in done.stderr, f"lacks '{where}'", done)
    quiet = expect_success(ranks, ["train", *DATA, "--epochs", "1"])
    require("debug" not in quiet.stderr, "says it unasked", quiet)


if __name__ == "__main__":
    raise SystemExit(attempt_all([(ranks, (part,)) for part in (ctrl_c, ctrl_c_with_checkpoints) for ranks in (1, 4)] + [(1, (two_at_once,)), (1, (twice,)), (4, (twice,)), (1, (widths,))] +
                                 [(ranks, (part,)) for part in (plain_lines, decisions) for ranks in (1, 4)]))
