#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--collectives: the algorithms of collectives, in training, on emulated nodes, in plans and in tables. collectives.py PROGRAM"""

import json
import os
import sys
import tempfile

from emulation import CLOCK_TICK, WIDTHS, metrics_of, partitioned, write_machine
from program import attempt_all, expect_mistake, expect_success, require

ALGORITHMS = ["library", "ring", "recursive", "two-level", "doubling", "nvrar"]


def same_losses(ranks):
    """Losses in fp64 are those of the library, with nodes of two ranks and without, on one axis or all."""
    with tempfile.TemporaryDirectory() as folder:
        store = partitioned(folder)
        machine = write_machine(folder, "machine.toml", 2)
        train = ["train", "--graph", store, *WIDTHS, "--epochs", "3", "--compute-dtype", "fp64", "--grid", "1x4x1x1", "--schedule", "pmm3d"]
        lines, _ = metrics_of(ranks, train, folder)
        expected = [line["loss"] for line in lines if line["event"] == "epoch"]
        for words, variables in [(word, {"ORTHANT_EMULATE": machine}) for word in ALGORITHMS] + [("ring", {}), ("x=recursive,data=ring", {})]:
            lines, done = metrics_of(ranks, [*train, "--collectives", words], folder, **variables)
            losses = [line["loss"] for line in lines if line["event"] == "epoch"]
            require(all(abs(a - b) < 1e-12 for a, b in zip(losses, expected, strict=True)), f"{words}: {losses}, not {expected}", done)


def predicted(ranks):
    """An epoch takes the seconds that plan says with the same choice; other algorithms take others."""
    with tempfile.TemporaryDirectory() as folder:
        store = partitioned(folder)
        machine = write_machine(folder, "machine.toml", 2)
        seconds = {}
        for word in [*ALGORITHMS, f"auto:{machine}"]:
            planned = expect_success(1, ["plan", "--graph", store, "--widths", "16-16-16-8", "--ranks", str(ranks), "--machine", machine,
                                         "--least-width", "1", "--top", "100", "--json", "--collectives", word])
            plans = [json.loads(line) for line in planned.stdout.splitlines()]
            plan = next(plan for plan in plans if plan["schedule"] == "pmm3d" and plan["grid"] == "1x4x1x1")
            lines, done = metrics_of(ranks, ["train", "--graph", store, *WIDTHS, "--epochs", "2", "--eval-every", "0", "--overlap", "off",
                                             "--schedule", "pmm3d", "--grid", "1x4x1x1", "--collectives", word], folder,
                                     ORTHANT_EMULATE=machine)
            require(abs(lines[-2]["seconds"] - plan["seconds"]) < CLOCK_TICK, f"{word}: {lines[-2]['seconds']} s, not {plan['seconds']}", done)
            seconds[word] = plan["seconds"]
        require(len(set(seconds.values())) >= 4, f"all alike: {seconds}", planned)
        require(seconds[f"auto:{machine}"] <= min(seconds.values()), f"the model's choice is not the fastest: {seconds}", planned)


def tuned(ranks):
    """bench collectives -o writes a table that other commands take."""
    with tempfile.TemporaryDirectory() as folder:
        table = os.path.join(folder, "table.json")
        done = expect_success(ranks, ["bench", "collectives", "-o", table, "--sizes", "1K:16K", "--repeat", "3"])
        require(len(done.stdout.splitlines()) == 1 + 4 * 3, "not a line per operation and size", done)
        with open(table, encoding="utf-8") as file:
            choices = json.load(file)["choices"]
        for choice in choices:
            require(choice["algorithm"] == min(choice["seconds"], key=choice["seconds"].get), f"{choice}: not the fastest", done)
            require(choice["nodes"] * choice["per_node"] == ranks and choice["bytes"] in (1024, 4096, 16384), f"{choice}", done)
        # A choice that is not the library's, so that the table matters.
        for choice in choices:
            choice["algorithm"] = "recursive"
        with open(table, "w", encoding="utf-8") as file:
            json.dump({"orthant_collectives": 1, "choices": choices}, file)
        expect_success(ranks, ["train", "--dataset", "karate", "--epochs", "2", "--collectives", table])


def mistakes(ranks):
    train = ["train", "--dataset", "karate", "--epochs", "1", "--collectives"]
    expect_mistake(ranks, [*train, "two_level"], r"'two_level' is no algorithm; did you mean 'two-level'\?.*\.json")
    for word in ("auto", "auto:"):
        expect_mistake(ranks, [*train, word], r"auto needs a model of the machine: give auto:NAME")
    expect_mistake(ranks, [*train, "auto:perlmuter"], r"perlmuter")
    expect_mistake(ranks, [*train, "auto:perlmutter,none.json"], r"one of an algorithm for all axes, auto:MACHINE and a table")
    expect_mistake(ranks, [*train, "w=ring"], r"'w' is no axis; they are x, y, z, data")
    expect_mistake(ranks, [*train, "ring,none.json"], r"one of an algorithm for all axes, auto:MACHINE and a table")
    expect_mistake(ranks, [*train, "none.json"], r"cannot read the table 'none\.json'")
    with tempfile.TemporaryDirectory() as folder:
        table = os.path.join(folder, "table.json")
        for text, pattern in (("{}", r"is no table of `bench collectives -o"), ("[1", r"is no table of"),
                              ('{"orthant_collectives": 2, "choices": []}', r"is of a newer version"),
                              ('{"orthant_collectives": 1, "choices": [{"operation": "barrier"}]}', r"'barrier' is no collective with a choice"),
                              ('{"orthant_collectives": 1, "choices": [{"operation": "all_reduce", "nodes": 0, "per_node": 4, "bytes": 4, '
                               '"algorithm": "ring"}]}', r"0 x 4 ranks of 4 bytes is no call")):
            with open(table, "w", encoding="utf-8") as file:
                file.write(text)
            expect_mistake(ranks, [*train, table], pattern)


if __name__ == "__main__":
    sys.exit(attempt_all([(4, (part,)) for part in (same_losses, predicted, tuned, mistakes)]))
