#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trainings that are told to end early: stops.py PROGRAM

A signal to mpirun or to the program, and --max-walltime: status 75, a checkpoint, and the run that goes on from it
has the losses of one that was never stopped, to the bit.
"""

import json
import os
import signal
import subprocess
import tempfile
import time

from program import ENVIRONMENT, Failure, LIMIT, MPIRUN, PROGRAM, attempt_all, expect_mistake, expect_success, require

DATA = ["--dataset", "sbm:vertices=2000,edges=20000,features=16,classes=5", "--compute-dtype", "fp64", "--seed", "7",
        "--hidden", "32"]
FULL = ["train", *DATA, "--epochs", "400", "--eval-every", "50"]
ENDLESS = ["train", *DATA, "--epochs", "100000000", "--eval-every", "0"]
BATCHES = ["train", *DATA, "--mode", "minibatch", "--batch", "100", "--epochs", "240", "--eval-every", "60"]
PRUNED = FULL + ["--schedule", "rows", "--prune", "on", "--residual", "--norm", "rms"]
ROWS = BATCHES + ["--schedule", "rows"]
TOKENS = ["train-lm", "--layers", "2", "--hidden", "32", "--dropout", "0.1", "--seed", "7", "--steps", "400", "--warmup-steps", "20",
          "--eval-every", "10", "--compute-dtype", "fp64"]


def epochs(metrics, unit="epoch"):
    """Loss by epoch or step. One that is missing or there twice is an error."""
    with open(metrics) as file:
        events = [json.loads(line) for line in file]
    records = [event for event in events if event["event"] == unit]
    if [record[unit] for record in records] != list(range(1, len(records) + 1)):
        raise Failure(f"{unit}s {[record[unit] for record in records]}")
    return [record["loss"] for record in records], events


def tokens_in(scratch):
    text, tokens = os.path.join(scratch, "text.txt"), os.path.join(scratch, "t.h5")
    with open(text, "w", encoding="ascii") as file:
        file.write("".join(chr(97 + (i * i + i // 7) % 23) for i in range(4000)))
    expect_success(1, ["tokenize", "--input", text, "-o", tokens])
    return tokens


def start(ranks, arguments):
    command = ([] if ranks == 1 else MPIRUN + [str(ranks)]) + [PROGRAM] + arguments
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=ENVIRONMENT)


def ranks_below(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


def wait_for(job, metrics, event, number):
    """Until the metrics have that many events, "epoch" or "step"."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end and job.poll() is None:
        try:
            with open(metrics) as file:
                if file.read().count(f'"event":"{event}"') >= number:
                    return
        except FileNotFoundError:  # a training makes it to see that it can, removes it, and makes it again
            pass
        time.sleep(0.01)
    raise Failure(f"{event} {number} was not reached; status {job.poll()}")


def finished(job):
    try:
        stdout, stderr = job.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        job.kill()
        raise Failure(f"still running after {LIMIT} s\n{job.communicate()}") from None
    return subprocess.CompletedProcess(job.args, job.returncode, stdout, stderr)


def goes_on_after(ranks, sent, command):
    unit = "step" if command[0] == "train-lm" else "epoch"
    with tempfile.TemporaryDirectory() as scratch:
        if unit == "step":
            command = command + ["--tokens", tokens_in(scratch)]
        metrics, whole, folder = (os.path.join(scratch, name) for name in ("m.jsonl", "whole.jsonl", "checkpoints"))
        expect_success(ranks, command + ["--metrics", whole])
        arguments = command + ["--metrics", metrics, "--checkpoint", folder, "--checkpoint-every", "100000"]
        job = start(ranks, arguments)
        wait_for(job, metrics, unit, 5)
        job.send_signal(sent)
        done = finished(job)
        require(done.returncode == 75, f"{signal.Signals(sent).name} is not followed by status 75", done)
        require("--resume auto" in done.stdout, "does not say how to go on", done)
        require("weights are saved" not in done.stdout, "says that weights are saved, and none are", done)
        losses, events = epochs(metrics, unit)
        stopped = events[-1]
        require(stopped["event"] == "stopped" and stopped["reason"] == signal.Signals(sent).name, f"says {stopped}", done)
        require(len(losses) == stopped[unit] - 1, f"{len(losses)} {unit}s, stopped before {stopped}", done)
        expect_success(ranks, arguments + ["--resume", "auto"])
        require(epochs(metrics, unit)[0] == epochs(whole, unit)[0], "the losses are not those of a run that was never stopped", done)


def starts_anew_after_a_kill(ranks, command):
    """Before its first checkpoint: nothing of the two attempts is in one file, and nothing is lost."""
    unit = "step" if command[0] == "train-lm" else "epoch"
    with tempfile.TemporaryDirectory() as scratch:
        if unit == "step":
            command = command + ["--tokens", tokens_in(scratch)]
        metrics, whole, trace, figure = (os.path.join(scratch, name) for name in ("m.jsonl", "whole.jsonl", "t.json", "f.svg"))
        with open(trace, "w", encoding="ascii") as file:
            file.write("an older trace")
        expect_success(ranks, command + ["--metrics", whole])
        arguments = command + ["--metrics", metrics, "--trace", trace, "--checkpoint", os.path.join(scratch, "c"), "--checkpoint-every", "100000"]
        expect_mistake(ranks, arguments, r"--trace '.*t\.json' exists; --force replaces it")
        arguments += ["--resume", "auto"]
        for number in (1, 2):
            job = start(ranks, arguments)
            while number == 2 and not os.path.exists(f"{metrics}.1") and job.poll() is None:
                time.sleep(0.01)
            wait_for(job, metrics, unit, 5)
            os.kill(job.pid if ranks == 1 else ranks_below(job.pid)[-1], signal.SIGKILL)
            done = finished(job)
            require(done.returncode != 0 and not os.listdir(os.path.join(scratch, "c")), "was not killed before its first checkpoint", done)
            require(os.path.exists(f"{metrics}.{number - 1}") == (number == 2), "metrics that are not its own have the wrong name", done)
        with open(f"{metrics}.1", "rb") as file:
            first = file.read()
        done = expect_success(ranks, arguments)
        require(f"it is '{metrics}.2' from now on" in done.stderr and f"it is '{trace}.1' from now on" in done.stderr, "says nothing of them", done)
        losses, events = epochs(metrics, unit)
        require(losses == epochs(whole, unit)[0] and sum(event["event"] == "run" for event in events) == 1, "mixes attempts", done)
        with open(f"{metrics}.1", "rb") as file:
            require(file.read() == first and first.count(b'"event":"run"') == 1 and first.count(f'"event":"{unit}"'.encode()) >= 5,
                    "the first attempt is gone", done)
        with open(f"{trace}.1", encoding="ascii") as file:
            require(file.read() == "an older trace", "the older trace is gone", done)
        expect_success(1, ["plot", metrics, f"{metrics}.1", f"{metrics}.2", "-o", figure])
        with open(figure, encoding="utf-8") as file:
            text = file.read()
        require(all(f"{metrics}{end}" in text or f"m{end}" in text for end in ("", ".1", ".2")), "plots fewer runs", done)
        # Going on adds nothing twice, and sets nothing but the trace aside.
        expect_success(ranks, arguments)
        require(epochs(metrics, unit)[0] == losses and not os.path.exists(f"{metrics}.3") and os.path.exists(f"{trace}.2"), "goes on wrongly", done)


def a_second_sigterm_ends_at_once(_):
    with tempfile.TemporaryDirectory() as scratch:
        metrics = os.path.join(scratch, "m.jsonl")
        # A step of many seconds would be needed to catch the time between two signals; both are sent at once.
        job = start(1, ENDLESS + ["--metrics", metrics, "--checkpoint", os.path.join(scratch, "c")])
        wait_for(job, metrics, "epoch", 3)
        job.send_signal(signal.SIGSTOP)
        job.send_signal(signal.SIGTERM)
        job.send_signal(signal.SIGINT)
        job.send_signal(signal.SIGCONT)
        done = finished(job)
        require(done.returncode in (-signal.SIGTERM, -signal.SIGINT), "a second signal does not end it", done)


def its_time_limit_stops_it(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        folder, metrics = os.path.join(scratch, "c"), os.path.join(scratch, "m.jsonl")
        arguments = ENDLESS + ["--checkpoint", folder, "--metrics", metrics]
        begin = time.monotonic()
        done = finished(start(ranks, arguments + ["--max-walltime", "45s"]))
        require(done.returncode == 75, "does not stop in time", done)
        require(time.monotonic() - begin < 45, "runs longer than it may", done)
        require(len(epochs(metrics)[0]) > 3, "stops far too early", done)
        require("the time limit" in done.stdout, "does not say why it stopped", done)
        require(epochs(metrics)[1][-1]["reason"] == "the time limit", "the metrics do not say why", done)
        require(any(name.endswith(".h5") for name in os.listdir(folder)), "there is no checkpoint", done)


def mistakes(_):
    expect_mistake(1, FULL + ["--max-walltime", "2h"], "--max-walltime .*give --checkpoint")
    with tempfile.TemporaryDirectory() as scratch:
        for text in ("soon", "0", "-1h"):
            expect_mistake(2, FULL + [f"--max-walltime={text}", "--checkpoint", os.path.join(scratch, "c")],
                           f"--max-walltime {text}: .*15min")


def main():
    return attempt_all([(1, (goes_on_after, signal.SIGTERM, FULL)), (1, (goes_on_after, signal.SIGINT, BATCHES)),
                        (4, (goes_on_after, signal.SIGUSR1, PRUNED)), (4, (goes_on_after, signal.SIGUSR1, ROWS)),
                        (1, (goes_on_after, signal.SIGINT, TOKENS)), (2, (goes_on_after, signal.SIGUSR1, TOKENS)),
                        (1, (starts_anew_after_a_kill, FULL)), (2, (starts_anew_after_a_kill, BATCHES)), (1, (starts_anew_after_a_kill, TOKENS)),
                        (1, (a_second_sigterm_ends_at_once,)), (1, (mistakes,)), (2, (its_time_limit_stops_it,))])


if __name__ == "__main__":
    raise SystemExit(main())
