#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train and train-lm --stragglers name the rank that a Kokkos tool delays. stragglers.py PROGRAM TOOL"""

import json
import os
import re
import socket
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from program import attempt_all, expect_success, require  # noqa: E402

TOOL = os.path.abspath(sys.argv[2])
LEAST_SHARE = 0.25  # of an epoch: on a loaded machine the other ranks come late, too


def delayed(rank):
    return {"KOKKOS_PROFILE_LIBRARY": TOOL, "KOKKOS_TOOLS_LIBS": TOOL, "ORTHANT_TEST_DELAYED_RANK": str(rank)}


def named(ranks, command, unit, rank):
    """The first line and the metrics name the rank, its node, and a time that is a part of the epoch."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "metrics.jsonl")
        done = expect_success(ranks, [*command, "--stragglers", "--metrics", metrics], **delayed(rank))
        lines = re.findall(rf"^straggler rank (\d+) on (\S+): ([\d.e+]+) ms per {unit} later than the median, (\d+) % of it", done.stdout, re.M)
        require(lines and lines[0][0] == str(rank), f"does not name rank {rank} first: {lines}", done)
        require(lines[0][1] == socket.gethostname(), f"names the node {lines[0][1]}", done)
        require(int(lines[0][3]) >= 100 * LEAST_SHARE, f"{lines[0][3]} % of the time only", done)
        with open(metrics, encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
        found = [record for record in records if record["event"] == "stragglers"]
        require(len(found) == 1 and found[0]["unit"] == unit, "has no line in the metrics", done)
        first = found[0]["ranks"][0]
        require(first["rank"] == rank and first["is_late"] and first["late_seconds"] > 0, f"metrics: {found}", done)
        seconds = sorted(record["seconds"] for record in records if record["event"] == unit)
        require(first["late_seconds"] < seconds[-1], f"{first} of epochs of {seconds}", done)


def of_graphs(ranks):
    train = ["train", "--dataset", "sbm:vertices=2003,edges=9000,features=13,classes=5", "--epochs", "12", "--eval-every", "0"]
    for rank in (0, 2):
        named(ranks, [*train, "--grid", "1x2x2x1"], "epoch", rank)
    named(ranks, [*train, "--schedule", "rows"], "epoch", 1)


def of_language_models(ranks):
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text.txt")
        tokens = os.path.join(folder, "tokens.h5")
        with open(text, "w", encoding="utf-8") as file:
            file.write("to be or not to be, that is the question. " * 200)
        expect_success(1, ["tokenize", "--input", text, "--tokenizer", "char", "-o", tokens])
        named(ranks, ["train-lm", "--tokens", tokens, "--layers", "1", "--hidden", "16", "--heads", "2", "--sequence", "16", "--global-batch", "4",
                      "--steps", "12", "--eval-every", "0", "--grid", "2x2x1x1"], "step", 3)


def of_two(_):
    named(2, ["train", "--dataset", "sbm:vertices=2003,edges=9000,features=13,classes=5", "--epochs", "12", "--eval-every", "0", "--mode", "minibatch",
              "--batch", "500", "--grid", "1x2x1x1"], "epoch", 1)


def silent(ranks):
    """Without the option, and on one rank, no rank is named."""
    train = ["train", "--dataset", "karate", "--epochs", "2"]
    for many, arguments in ((ranks, train), (1, [*train, "--stragglers"])):
        done = expect_success(many, arguments)
        require("straggler" not in done.stdout, "names a straggler", done)
    require("one rank waits for no other" in done.stderr, "no warning", done)


if __name__ == "__main__":
    sys.exit(attempt_all([(4, (part,)) for part in (of_graphs, of_two, of_language_models, silent)]))
