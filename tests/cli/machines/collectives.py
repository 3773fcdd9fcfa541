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


def thin(ranks):
    """Messages of 8 bits: fewer bytes, nearly the same losses, and a loss of numbers that the metrics have."""
    with tempfile.TemporaryDirectory() as folder:
        store = partitioned(folder)
        train = ["train", "--graph", store, *WIDTHS, "--epochs", "5", "--schedule", "pmm3d", "--grid", "1x2x2x1"]
        of_fp32, done = metrics_of(ranks, train, folder)
        expected = [line for line in of_fp32 if line["event"] == "epoch"]
        require("wire_error" not in expected[0], "fp32 loses something", done)
        for word, least, most in (("bf16", 1e-4, 4e-3), ("int8", 1e-3, 2e-2), ("activations=fp8", 1e-2, 4e-2)):
            lines, done = metrics_of(ranks, [*train, "--comm-dtype", word], folder)
            epochs = [line for line in lines if line["event"] == "epoch"]
            for epoch, other in zip(epochs, expected, strict=True):
                require(least < epoch["wire_error"] < most, f"{word}: wire_error {epoch['wire_error']}", done)
                require(abs(epoch["loss"] - other["loss"]) < 0.05 * other["loss"], f"{word}: {epoch['loss']}, not {other['loss']}", done)
                require(epoch["comm_bytes"] < 0.75 * other["comm_bytes"], f"{word}: {epoch['comm_bytes']} of {other['comm_bytes']} bytes", done)
        state = ["--checkpoint", os.path.join(folder, "state"), "--resume", "auto"]
        expect_success(ranks, [*train, *state, "--comm-dtype", "int8"])
        expect_success(ranks, [*train, *state, "--comm-dtype", "activations=int8,gradients=fp32"])  # the same
        expect_mistake(ranks, [*train, *state, "--comm-dtype", "activations=int8,gradients=int8"], r"--comm-dtype")


def thin_gradients(ranks):
    """Sums of gradients in 16 and 8 bits, with error feedback; and an option that has no effect."""
    with tempfile.TemporaryDirectory() as folder:
        text, tokens = os.path.join(folder, "text.txt"), os.path.join(folder, "tokens.h5")
        with open(text, "w", encoding="utf-8") as file:
            file.write("to be or not to be, that is the question. " * 200)
        expect_success(1, ["tokenize", "--input", text, "--tokenizer", "char", "-o", tokens])
        train = ["train-lm", "--tokens", tokens, "--layers", "2", "--hidden", "32", "--heads", "2", "--sequence", "16", "--global-batch", "8",
                 "--steps", "40", "--eval-every", "40", "--warmup-steps", "4"]
        lines, of_fp32 = metrics_of(ranks, [*train, "--grid", "4x1x1x1"], folder)
        expected = [line for line in lines if line["event"] == "step"]
        for grid in (["4x1x1x1"], ["2x2x1x1"], ["2x1x1x1", "--pipeline", "2"]):
            for word in ("bf16", "fp8", "int8"):
                lines, done = metrics_of(ranks, [*train, "--grid", *grid, "--comm-dtype", f"gradients={word}"], folder)
                steps = [line for line in lines if line["event"] == "step"]
                require(0 < steps[-1]["wire_error"] < 0.05, f"{word}: wire_error {steps[-1]['wire_error']}", done)
                require(abs(steps[-1]["loss"] - expected[-1]["loss"]) < 0.02 * expected[0]["loss"],
                        f"{word}: {steps[-1]['loss']}, not {expected[-1]['loss']}", of_fp32)
        done = expect_success(ranks, [*train, "--grid", "1x2x2x1", "--comm-dtype", "gradients=int8"])
        require("has no effect" in done.stderr, "does not say that no gradients are summed", done)


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
    expect_mistake(ranks, [*train, "auto:perlmutter,none.json"], r"one of an algorithm for all axes, auto:MACHINE and a \.json table")
    words = ["train", "--dataset", "karate", "--comm-dtype"]
    expect_mistake(ranks, [*words, "int4"], r"'int4' is no format of messages; they are fp32, bf16")
    expect_mistake(ranks, [*words, "bf16,fp8"], r"the format of activations is given twice")
    expect_mistake(ranks, [*words, "weights=int8"], r"'weights' names no messages; give activations=")
    expect_mistake(ranks, [*words, "gradients=fp16"], r"gradients may leave the range of fp16")
    for more in (["--zero", "1"], ["--compute-dtype", "fp64"]):
        expect_mistake(ranks, ["train-lm", "--tokens", "t.h5", "--comm-dtype", "gradients=int8", *more],
                       r"goes with --zero 0 and --compute-dtype fp32")
    expect_mistake(ranks, ["train-lm", "--tokens", "t.h5", "--comm-dtype", "bf16", "--compute-dtype", "fp64"],
                   r"--comm-dtype bf16 goes with --compute-dtype fp32: leave one of them out")
    expect_mistake(ranks, [*train, "w=ring"], r"'w' is no axis; they are x, y, z, data")
    expect_mistake(ranks, [*train, "ring,none.json"], r"one of an algorithm for all axes, auto:MACHINE and a \.json table")
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
    sys.exit(attempt_all([(4, (part,)) for part in (same_losses, predicted, thin, thin_gradients, tuned, mistakes)]))
