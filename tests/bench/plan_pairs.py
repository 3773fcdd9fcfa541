#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds predicted epochs against measured ones on the machine at hand, and --grid auto against the best of all grids.

  plan_pairs.py graphs  --work DIR --orthant build/bin/orthant            # makes the stores
  plan_pairs.py machine --work DIR --orthant build/bin/orthant            # orthant bench machine
  plan_pairs.py pairs   --work DIR --orthant build/bin/orthant            # ten configurations on two ranks
  plan_pairs.py auto    --work DIR --orthant build/bin/orthant            # all grids and schedules of four networks
  plan_pairs.py batches --work DIR --orthant build/bin/orthant            # all grids and schedules of two mini-batch trainings
  plan_pairs.py lm      --work DIR --orthant build/bin/orthant --tokens T.h5

Run `machine` and the others one after the other on an idle machine. The ten configurations were fixed before anything was measured.
An epoch is the median of `bench epoch`; of `auto`, `batches` and `lm` the median over rounds in which all choices take turns. Exit
status: 0 done, 1 a program failed, 2 a mistake of yours.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import shlex
import statistics
import sys

from bench_programs import Failure, main, output_of

RANKS = 2
GRAPHS = {
    "rmat": ["--kind", "rmat", "--vertices", 100000, "--edges", 1000000, "--features", 100, "--classes", 47],
    "sbm": ["--kind", "sbm", "--vertices", 50000, "--edges", 2000000, "--features", 128, "--classes", 32],
    "grid2d": ["--kind", "grid2d", "--vertices", 262144, "--features", 64, "--classes", 16],
}
WIDTHS = {"rmat": (100, 47), "sbm": (128, 32), "grid2d": (64, 16)}
# Graph, layers, hidden columns, schedule, grid, dropout.
CONFIGURATIONS = [
    ("rmat", 3, 128, "pmm3d", "1x2x1x1", 0),
    ("rmat", 3, 128, "rows", "1x1x1x2", 0),
    ("rmat", 3, 64, "pmm3d", "1x1x2x1", 0),
    ("rmat", 2, 256, "rows", "1x1x2x1", 0.5),
    ("sbm", 3, 128, "pmm3d", "1x1x1x2", 0),
    ("sbm", 3, 128, "rows", "1x2x1x1", 0.5),
    ("sbm", 2, 32, "rows", "1x1x1x2", 0),
    ("grid2d", 3, 128, "pmm3d", "1x1x2x1", 0),
    ("grid2d", 3, 64, "rows", "1x2x1x1", 0),
    ("sbm", 4, 64, "pmm3d", "1x2x1x1", 0.5),
]
# In the order in which train prefers those that are predicted to be equally fast.
CHOICES = [(grid, schedule) for grid in ("1x1x1x2", "1x1x2x1", "1x2x1x1") for schedule in ("pmm3d", "rows")]


def store(options, graph):
    return options.work / f"{graph}.h5"


def run(options, *arguments):
    return output_of([*options.mpirun, RANKS, options.orthant, *arguments, "--log-level", "error"])


def widths(graph, layers, hidden):
    first, last = WIDTHS[graph]
    return "-".join(map(str, [first, *[hidden] * (layers - 1), last]))


def predicted(options, graph, layers, hidden, dropout, *more):
    """By (grid, schedule): the JSON lines of plan."""
    said = output_of([options.orthant, "plan", "--graph", store(options, graph), "--ranks", RANKS, "--widths", widths(graph, layers, hidden),
                      "--dropout", dropout, "--least-width", 1, "--top", 100, "--json", "--machine", options.work / "here.toml", *more])
    return {(line["grid"], line["schedule"]): line for line in map(json.loads, said.splitlines())}


def epoch(options, graph, layers, hidden, schedule, grid, dropout, epochs):
    said = run(options, "bench", "epoch", "--graph", store(options, graph), "--layers", layers, "--hidden", hidden, "--schedule", schedule,
               "--grid", grid, "--dropout", dropout, "--epochs", epochs, "--stream-mib", 8, "--gemm-size", 256) # the machine itself is not asked
    return json.loads(said.splitlines()[-1])


def ranks_of(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    places = [0] * len(values)
    for place, i in enumerate(order):
        places[i] = place
    return places


def correlation(a, b):
    return statistics.correlation(a, b)


def graphs(options):
    for graph, arguments in GRAPHS.items():
        folder = options.work / graph
        output_of([options.orthant, "generate", *arguments, "-o", folder, "--force"])
        output_of([options.orthant, "partition", "--input", folder, "-o", store(options, graph), "--force"])
        print(store(options, graph))


def machine(options):
    print(run(options, "bench", "machine", "-o", options.work / "here.toml", "--name", "here", "--force"))


def pairs(options):
    rows = []
    for graph, layers, hidden, schedule, grid, dropout in CONFIGURATIONS:
        plan = predicted(options, graph, layers, hidden, dropout)[grid, schedule]
        line = epoch(options, graph, layers, hidden, schedule, grid, dropout, options.epochs)
        rows.append((plan["seconds"], line["seconds"]))
        error = plan["seconds"] / line["seconds"] - 1
        terms = ", ".join(f"{name} {1e3 * plan[name + '_seconds']:.1f}" for name in ("sparse", "dense", "pass"))
        calls = 1e3 * sum(plan["call_seconds"].values())
        print(f"| {graph} | {layers} x {hidden} | {schedule} | {grid} | {dropout} | {1e3 * plan['seconds']:.1f} | {1e3 * line['seconds']:.1f} | "
              f"{100 * error:+.0f} % | {terms}, calls {calls:.1f} | sparse {1e3 * line['bare_spmm_seconds']:.1f}, "
              f"dense {1e3 * line['bare_gemm_seconds']:.1f}; " +
              ", ".join(f"{name} {1e3 * seconds:.1f}" for name, seconds in line["phases"].items()) + " |", flush=True)
    ahead, measured = zip(*rows)
    errors = [abs(a / b - 1) for a, b in rows]
    print(f"span {max(measured) / min(measured):.1f}; error median {100 * statistics.median(errors):.1f} %, most {100 * max(errors):.1f} %, "
          f"{sum(e <= 0.2 for e in errors)} of {len(errors)} within 20 %; correlation of ranks "
          f"{correlation(ranks_of(ahead), ranks_of(measured)):.3f}, of logarithms "
          f"{correlation([math.log(a) for a in ahead], [math.log(b) for b in measured]):.3f}")


def in_turns(options, name, choices, seconds_of, seconds_ahead):
    """Medians of rounds, and what the choice by prediction costs."""
    times = {choice: [] for choice in choices}
    for _ in range(options.rounds):
        for choice in choices:
            times[choice].append(seconds_of(choice))
    medians = {choice: statistics.median(values) for choice, values in times.items()}
    chosen, best = min(choices, key=seconds_ahead.__getitem__), min(choices, key=medians.__getitem__)
    for choice in sorted(choices, key=medians.__getitem__):
        print(f"| {name} | {' '.join(choice)} | {1e3 * seconds_ahead[choice]:.1f} | {1e3 * medians[choice]:.1f} |")
    print(f"{name}: auto takes {' '.join(chosen)}, {100 * (medians[chosen] / medians[best] - 1):.1f} % slower than {' '.join(best)}", flush=True)
    if options.pairs == 0:
        return
    rival = min((choice for choice in choices if choice != chosen), key=medians.__getitem__)
    ratios = sorted(seconds_of(chosen) / seconds_of(rival) for _ in range(options.pairs))
    print(f"{name}: {options.pairs} pairs of {' '.join(chosen)} and the fastest other, {' '.join(rival)}: median ratio "
          f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})", flush=True)


def auto(options):
    networks = [("rmat", 3, 128, 0), ("sbm", 3, 128, 0.5), ("sbm", 2, 32, 0), ("grid2d", 3, 64, 0)]
    for graph, layers, hidden, dropout in networks[options.case:][:1] if options.case is not None else networks:
        plan = predicted(options, graph, layers, hidden, dropout)
        in_turns(options, f"{graph} {layers} x {hidden}", CHOICES,
                 lambda c: epoch(options, graph, layers, hidden, c[1], c[0], dropout, options.epochs)["seconds"],
                 {choice: plan[choice]["seconds"] for choice in CHOICES})


def epochs_of(options, command, event, *arguments):
    metrics = options.work / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    run(options, command, *arguments, "--metrics", metrics)
    seconds = [line["seconds"] for line in map(json.loads, metrics.read_text().splitlines()) if line["event"] == event]
    if len(seconds) < 2:
        raise Failure(f"{metrics} has {len(seconds)} lines of {event}")
    return statistics.median(seconds[1:])


def batches(options):
    networks = [("rmat", 3, 128, 25000), ("sbm", 3, 64, 12500)]
    for graph, layers, hidden, batch in networks[options.case:][:1] if options.case is not None else networks:
        plan = predicted(options, graph, layers, hidden, 0.5, "--mode", "minibatch", "--batch", batch, "--eval-every", 0)
        in_turns(options, f"{graph} {layers} x {hidden}, batches of {batch}", CHOICES,
                 lambda c: epochs_of(options, "train", "epoch", "--graph", store(options, graph), "--mode", "minibatch", "--batch", batch,
                                     "--layers", layers, "--hidden", hidden, "--grid", c[0], "--schedule", c[1], "--eval-every", 0,
                                     "--epochs", options.epochs),
                 {choice: plan[choice]["seconds"] for choice in CHOICES})


def lm(options):
    said = output_of([options.orthant, "plan-lm", "--tokens", options.tokens, "--preset", "nanogpt-cpu", "--ranks", RANKS, "--top", 100,
                      "--json", "--machine", options.work / "here.toml"])
    plan = {(line["grid"],): line["seconds"] for line in map(json.loads, said.splitlines())}
    in_turns(options, "nanogpt-cpu", list(plan),
             lambda c: epochs_of(options, "train-lm", "step", "--tokens", options.tokens, "--preset", "nanogpt-cpu", "--grid", c[0],
                                 "--eval-every", 0, "--steps", options.epochs, "--warmup-steps", 1), plan)


WORK = {"graphs": graphs, "machine": machine, "pairs": pairs, "auto": auto, "batches": batches, "lm": lm}


def parse_options(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=WORK)
    parser.add_argument("--work", type=pathlib.Path, required=True, help="folder of stores and of the machine file")
    parser.add_argument("--orthant", type=pathlib.Path, required=True)
    parser.add_argument("--mpirun", type=shlex.split, default=["mpirun", "-n"])
    parser.add_argument("--tokens", type=pathlib.Path)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=0, help="of auto's choice and the fastest other one, after the rounds")
    parser.add_argument("--case", type=int, help="of auto and batches: this network alone, from 0")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main("plan_pairs", parse_options, lambda options, _: WORK[options.what](options)))
