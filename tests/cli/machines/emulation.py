#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ORTHANT_EMULATE: runs on the virtual clock of a machine. emulation.py PROGRAM PART

Ranks of the test's machines compute in no time, so seconds are those of calls alone and do not depend on the machine that runs the test.
"""

import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from program import attempt_all, expect_mistake, expect_success, require  # noqa: E402

MACHINE = """name = "test"
ranks_per_node = {ranks_per_node}
[memory]
bytes_per_second = 1e300
source = "test"
[dense_products]
fp32 = 1e300
of_16_bits = 1e300
source = "test"
[sparse_products]
per_nonzero = [[1, 1e-300]]
source = "test"
[launch]
seconds = 0
source = "test"
[collectives]
call_seconds = 1e-3
step_seconds = 5e-4
inside = [[1, 2, 1e6], [2, 2, 5e5]]
bytes_per_second_between_nodes = 4e5
source = "test"
[emulation]
seconds_per_processor_second = {factor}
source = "test"
"""
# Equal parts on any grid of four ranks, so that all ranks send as much.
GRAPH = ["--kind", "sbm", "--vertices", "480", "--edges", "4000", "--features", "16", "--classes", "8"]
WIDTHS = ["--layers", "3", "--hidden", "16"]
CLOCK_TICK = 2e-9  # seconds of epochs are differences of times in nanoseconds


def write_machine(folder, name, ranks_per_node, factor=0):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(MACHINE.format(ranks_per_node=ranks_per_node, factor=factor))
    return path


def partitioned(folder):
    store = os.path.join(folder, "graph.h5")
    expect_success(1, ["generate", *GRAPH, "-o", folder + "/graph"])
    expect_success(1, ["partition", "--input", folder + "/graph", "-o", store])
    return store


def metrics_of(ranks, arguments, folder, **variables):
    path = os.path.join(folder, "metrics.jsonl")
    done = expect_success(ranks, [*arguments, "--metrics", path], **variables)
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    os.remove(path)
    return lines, done


def seconds_of_calls(ranks):
    """An epoch on any grid takes the seconds that plan says, exactly: latencies, links that groups share, both schedules."""
    with tempfile.TemporaryDirectory() as folder:
        store = partitioned(folder)
        machine = write_machine(folder, "machine.toml", 2)
        planned = expect_success(1, ["plan", "--graph", store, "--widths", "16-16-16-8", "--ranks", str(ranks), "--machine", machine,
                                     "--least-width", "1", "--top", "100", "--json"])
        plans = [json.loads(line) for line in planned.stdout.splitlines()]
        require(len(plans) == 12, "not six grids per schedule", planned)
        train = ["train", "--graph", store, *WIDTHS, "--epochs", "2", "--eval-every", "0"]
        for plan in plans:
            gather = ["--gather", "all"] if plan["schedule"] == "rows" else []
            lines, done = metrics_of(ranks, [*train, "--overlap", "off", "--schedule", plan["schedule"], "--grid", plan["grid"], *gather],
                                     folder, ORTHANT_EMULATE=machine)
            require(all(line["clock"] == "virtual" for line in lines), f"{plan}: real seconds", done)
            epoch = lines[-2]
            require(abs(epoch["seconds"] - plan["seconds"]) < CLOCK_TICK,
                    f"{plan['schedule']} {plan['grid']}: {epoch['seconds']} s, not {plan['seconds']}", done)
            phases = sum(epoch["phases"].values())
            require(abs(phases - epoch["seconds"]) < 1e-6, f"{phases} s of phases", done)
            require("virtual" in done.stdout and "all seconds are virtual" in done.stderr, "does not say so", done)
        best = min(plans, key=lambda plan: plan["seconds"])
        lines, done = metrics_of(ranks, train, folder, ORTHANT_EMULATE=machine)
        require(lines[0]["emulated_machine"] == machine, "does not name the machine", done)
        require((lines[0]["schedule"], lines[0]["grid"]) == (best["schedule"], best["grid"]), f"auto does not take {best}", done)


def same_numbers(ranks):
    """Losses have the same bits with and without, in every mode of training, overlapped or not."""
    with tempfile.TemporaryDirectory() as folder:
        store = partitioned(folder)
        machine = write_machine(folder, "machine.toml", 1024, 1)
        tokens = os.path.join(folder, "tokens.h5")
        with open(os.path.join(folder, "text.txt"), "w", encoding="utf-8") as file:
            file.write("to be or not to be " * 100)
        expect_success(1, ["tokenize", "--input", os.path.join(folder, "text.txt"), "-o", tokens])
        few = ["train", "--graph", store, *WIDTHS, "--epochs", "3", "--grid"] # else each run chooses for its machine
        for arguments, event in ((few + ["1x2x2x1", "--schedule", "pmm3d"], "epoch"), (few + ["1x2x1x2", "--schedule", "rows", "--overlap", "on"], "epoch"),
                                 (few + ["2x2x1x1", "--mode", "minibatch", "--schedule", "pmm3d", "--batch", "100"], "epoch"),
                                 (few + ["1x2x2x1", "--comm-dtype", "bf16", "--schedule", "pmm3d", "--overlap", "on"], "epoch"),
                                 (["train-lm", "--tokens", tokens, "--layers", "1", "--hidden", "8", "--heads", "2", "--sequence", "8",
                                   "--global-batch", "4", "--steps", "3", "--eval-every", "1", "--grid", "2x1x1x2"], "step")):
            real, done = metrics_of(ranks, arguments, folder)
            require(not any("clock" in line for line in real), f"{arguments}: virtual seconds", done)
            virtual, done = metrics_of(ranks, arguments, folder, ORTHANT_EMULATE=machine)
            for key in ("loss", "comm_bytes", "sent_bytes", "val_loss"):
                found, expected = ([line[key] for line in lines if key in line] for lines in (virtual, real))
                require(found == expected and (found or key == "val_loss"), f"{arguments}: {key} {found}, not {expected}", done)
            seconds = [line["seconds"] for line in virtual if line["event"] == event]
            require(len(seconds) == 3 and min(seconds) > 5e-3, f"{arguments}: {seconds} s for calls of milliseconds", done)


def mistakes(ranks):
    train = ["train", "--dataset", "karate", "--epochs", "1"]
    expect_mistake(ranks, train, r"no machine 'perlmuter'; .*did you mean 'perlmutter'", ORTHANT_EMULATE="perlmuter")
    expect_mistake(ranks, train, r"cannot read the table 'none\.toml'", ORTHANT_EMULATE="none.toml")
    with tempfile.TemporaryDirectory() as folder:
        expect_mistake(ranks, train, r"seconds_per_processor_second of \[emulation\]: -1 must not be below 0",
                       ORTHANT_EMULATE=write_machine(folder, "wrong.toml", 1, -1))
    expect_mistake(ranks, ["bench", "collectives"], r"times real calls .*unset ORTHANT_EMULATE", ORTHANT_EMULATE="host")
    expect_success(ranks, train, ORTHANT_EMULATE="")


PARTS = {"seconds": [seconds_of_calls], "numbers": [same_numbers], "mistakes": [mistakes]}


if __name__ == "__main__":
    sys.exit(attempt_all([(4, (part,)) for part in PARTS[sys.argv[2]]]))
