#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trainings that are killed and go on: kills.py PROGRAM [--kills N] [--ranks P] [--seed S]

A random rank gets SIGKILL at a random moment, again and again, and each time the training goes on by --resume auto. In the end
every epoch is in the metrics once, and all losses are those of a training that nobody killed. Prints the counts.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

LIMIT = 120  # seconds after which a job counts as hung
TRAIN = ["train", "--dataset", "sbm:vertices=300,edges=1500,features=32,classes=5", "--layers", "3", "--hidden", "256",
         "--compute-dtype", "fp64", "--eval-every", "5", "--trainable-features"]


class Jobs:
    def __init__(self, options, folder):
        self.program = os.path.abspath(options.program)
        self.mpirun = os.environ["ORTHANT_MPIRUN"].split()
        self.ranks = options.ranks
        self.folder = os.path.join(folder, "checkpoints")
        self.metrics = os.path.join(folder, "metrics.jsonl")

    def command(self, epochs, *arguments):
        return self.mpirun + [str(self.ranks), self.program, *TRAIN, "--epochs", str(epochs), *arguments]

    def resumed(self, epochs, error):
        """A job that goes on; its stderr goes to the file `error`."""
        return subprocess.Popen(self.command(epochs, "--checkpoint", self.folder, "--checkpoint-every", "1", "--resume", "auto",
                                             "--metrics", self.metrics),
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=error)

    def names(self):
        try:
            return os.listdir(self.folder)
        except FileNotFoundError:
            return []

    def newest(self):
        return max((name for name in self.names() if re.fullmatch(r"checkpoint-\d+\.h5", name)), default="")

    def is_writing(self):
        return any(".partial-" in name for name in self.names())


def ranks_below(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


def kill_one(jobs, draw, wants_writing):
    """Kills a rank of a job soon after it has written a checkpoint. Returns whether another one was being written, and stderr."""
    before = jobs.newest()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as error:
        job = jobs.resumed(1_000_000, error)
        deadline = time.monotonic() + LIMIT
        while jobs.newest() == before and job.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 0.5))
        while wants_writing and not jobs.is_writing() and time.monotonic() < deadline:
            time.sleep(0.0005)
        if job.poll() is not None:
            error.seek(0)
            sys.exit(f"a job ended by itself with status {job.returncode}: {error.read()}")
        was_writing = jobs.is_writing()
        os.kill(draw.choice(ranks_below(job.pid)), signal.SIGKILL)
        status = job.wait(LIMIT)
        error.seek(0)
        text = error.read()
    if status == 0:
        sys.exit("a job that was killed ended well")
    return was_writing, text


def losses_of(path):
    """By epoch; an epoch that is there twice is an error."""
    losses = {}
    with open(path, encoding="utf-8") as file:
        for line in map(json.loads, file):
            if line["event"] != "epoch":
                continue
            if line["epoch"] in losses:
                sys.exit(f"epoch {line['epoch']} is in the metrics twice")
            losses[line["epoch"]] = line["loss"]
    return losses


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        jobs = Jobs(options, folder)
        num_writing = 0
        num_damaged = 0
        for number in range(options.kills):
            was_writing, text = kill_one(jobs, draw, number % 2 == 0)
            num_writing += was_writing
            num_damaged += "is damaged" in text
            if number > 0 and "goes on from" not in text:
                sys.exit(f"kill {number}: the job before did not go on: {text}")
        reached = max(losses_of(jobs.metrics))
        epochs = reached + 3
        with open(os.path.join(folder, "stderr"), "w+", encoding="utf-8") as error:
            if jobs.resumed(epochs, error).wait(LIMIT) != 0:
                error.seek(0)
                sys.exit(f"the last job failed: {error.read()}")
        whole = os.path.join(folder, "whole.jsonl")
        subprocess.run(jobs.command(epochs, "--metrics", whole), check=True, capture_output=True, timeout=10 * LIMIT)
        found, expected = losses_of(jobs.metrics), losses_of(whole)
        if sorted(found) != list(range(1, epochs + 1)):
            sys.exit(f"epochs {sorted(found)} of {epochs}")
        error = max(abs(found[epoch] - expected[epoch]) for epoch in expected)
        print(f"{options.kills} kills, {num_writing} of them while a checkpoint was being written; {num_damaged} damaged checkpoints "
              f"read; {epochs} epochs, each once; largest difference of a loss {error:.1e}")
        if error > 1e-10 or num_damaged or 2 * num_writing < options.kills:
            sys.exit(1)


if __name__ == "__main__":
    main()
