#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""orthant plan --simulate: epochs played message by message. simulation.py PROGRAM"""

import json
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from program import attempt_all, expect_mistake, expect_success, require  # noqa: E402

PAPERS = ["--vertices", "111059956", "--nonzeros", "1726745828", "--symmetric", "no", "--widths", "128-128-128-172", "--dropout", "0",
          "--machine", "perlmutter", "--top", "1"]


def simulated(arguments, command="plan"):
    done = expect_success(1, [command, *arguments, "--simulate", "--json"])
    return [json.loads(line) for line in done.stdout.splitlines()], done


def thousands_of_ranks(_):
    """2,048 ranks one by one, and 16,384 as one, within a minute; nearly what the sum of the list says."""
    for ranks in ("2048", "16384"):
        begin = time.monotonic()
        lines, done = simulated([*PAPERS, "--ranks", ranks, "--schedule", "rows"])
        require(time.monotonic() - begin < 60, f"{ranks} ranks take longer than a minute", done)
        for line in lines:
            parts = sum(line[f"simulated_{part}_seconds"] for part in ("computing", "waiting", "call"))
            require(parts <= line["simulated_seconds"] * (1 + 1e-9), f"{line}: the mean rank takes longer than the last", done)
            require(0.3 < line["simulated_seconds"] / line["seconds"] < 3, f"{line}: nothing like the sum", done)


def stragglers(_):
    """One slow rank holds all others up, for as long as it takes longer: on one node, where groups share no link."""
    few = ["--vertices", "96000", "--nonzeros", "2000000", "--widths", "16-16-16", "--ranks", "8", "--machine", "host", "--schedule",
           "pmm3d", "--top", "1", "--least-width", "1"]
    (even,), done = simulated(few)
    (slow,), _ = simulated([*few, "--slow-ranks", "3:5"])
    longer = slow["simulated_seconds"] - even["simulated_seconds"]
    computing = 4 * even["simulated_computing_seconds"]
    require(0.95 * computing < longer < 1.05 * computing, f"{longer} s longer, where rank 3 computes {computing} longer", done)
    require(slow["simulated_waiting_seconds"] > 0.8 * computing, f"{slow}: who waits?", done)


def other_steps(_):
    """Mini-batches and language models: a slow rank holds up the others; an epoch of batches is that many steps; thousands of ranks."""
    batches = ["--vertices", "96000", "--nonzeros", "2000000", "--widths", "16-16-16", "--ranks", "8", "--machine", "host", "--schedule",
               "pmm3d", "--top", "1", "--mode", "minibatch", "--batch", "12000"]
    model = ["--preset", "nanogpt-cpu", "--vocabulary", "65", "--ranks", "8", "--global-batch", "64", "--machine", "host", "--top", "1"]
    for command, arguments in (("plan", batches), ("plan-lm", model)):
        (even,), done = simulated(arguments, command)
        parts = sum(even[f"simulated_{part}_seconds"] for part in ("computing", "waiting", "call"))
        require(parts <= even["simulated_seconds"] * (1 + 1e-9), f"{even}: the mean rank takes longer than the last", done)
        require(0.5 < even["simulated_seconds"] / even["seconds"] < 2, f"{even}: nothing like the sum", done)
        (slow,), done = simulated([*arguments, "--slow-ranks", "3:5"], command)
        longer = slow["simulated_seconds"] - even["simulated_seconds"]
        computing = 4 * even["simulated_computing_seconds"]
        require(0.9 * computing < longer < 1.1 * computing, f"{longer} s longer, where rank 3 computes {computing} longer", done)
    text = expect_success(1, ["plan", *batches, "--simulate"]).stdout + expect_success(1, ["plan-lm", *model, "--simulate"]).stdout
    require(text.count("simulated: ") == 2, "is not told", done)
    large = ["--preset", "llama-7b", "--vocabulary", "32000", "--machine", "perlmutter", "--top", "1", "--ranks", "8192", "--global-batch", "8192"]
    (line,), done = simulated(large, "plan-lm")
    require(0.3 < line["simulated_seconds"] / line["seconds"] < 3, f"{line}: nothing like the sum", done)
    expect_mistake(1, ["plan-lm", *model[:-4], "--simulate"], r"--simulate needs a machine to simulate: name one")


def blocks_of_a_store(_):
    """Blocks of a graph in its own order are uneven: ranks wait. All ranks are in the timeline."""
    with tempfile.TemporaryDirectory() as folder:
        graph, trace = os.path.join(folder, "graph"), os.path.join(folder, "trace.json")
        expect_success(1, ["generate", "--kind", "rmat", "--vertices", "2000", "--edges", "40000", "--features", "8", "--classes", "4",
                           "-o", graph])
        waiting = {}
        for permute in ("none", "double"):
            store = os.path.join(folder, permute + ".h5")
            expect_success(1, ["partition", "--input", graph, "-o", store, "--permute", permute])
            (line,), done = simulated(["--graph", store, "--ranks", "4", "--machine", "host", "--schedule", "pmm3d", "--top", "1"])
            waiting[permute] = line["simulated_waiting_seconds"]
        require(waiting["none"] > 3 * waiting["double"], f"{waiting}", done)
        text = expect_success(1, ["plan", "--graph", store, "--ranks", "4", "--machine", "host", "--simulate", "--trace", trace]).stdout
        if text.count("simulated: ") != 2:
            require(False, "does not show both schedules", done)
        with open(trace, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        slices = [event for event in events if event["ph"] == "X"]
        require({event["pid"] for event in slices} == {0, 1, 2, 3}, "lacks ranks", done)
        require({"compute", "all_reduce"} <= {event["name"] for event in slices}, "lacks work or calls", done)


def mistakes(_):
    few = ["plan", "--vertices", "100", "--nonzeros", "500", "--widths", "16-8", "--ranks", "4"]
    expect_mistake(1, [*few, "--simulate"], r"--simulate needs a machine to simulate: name one")
    expect_mistake(1, [*few, "--machine", "host", "--slow-ranks", "1:2"], r"add --simulate")
    for text in ("1", "1:", "1:0", "x:2", "-1:2", "1:2:3"):
        expect_mistake(1, [*few, "--machine", "host", "--simulate", f"--slow-ranks={text}"], r"give ranks with how many times as long")
    expect_mistake(1, [*few, "--machine", "host", "--simulate", "--slow-ranks", "4:2"], r"there are 4 ranks; give one below 4")


if __name__ == "__main__":
    sys.exit(attempt_all([(1, (thousands_of_ranks,)), (1, (stragglers,)), (1, (other_steps,)), (1, (blocks_of_a_store,)), (1, (mistakes,))]))
