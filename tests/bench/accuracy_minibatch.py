#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the same model on full graphs and in mini-batches of N/8 vertices, over several seeds, and prints the accuracies.

  accuracy_minibatch.py --data DATASETS --orthant build/bin/orthant --work kept/ --json result.json
  accuracy_minibatch.py coauthor_physics --stores STORES --seeds 5 --ways full,minibatch

A run's accuracy is that on the test vertices at the epoch with the best validation accuracy among those evaluated. The ways
to train: `full`; `minibatch`; `finish`, which is `minibatch` and then --finish-full epochs on the full graph; `data`, which
is `minibatch` on the grid 2x1x2x1 with one batch for each of its two groups. Model, learning rate and weight decay are the
same in all of them. `minibatch` beside `finish` is no run of its own, but the epochs of `finish` before the switch, which
are the same. --epochs overrides the recipe's epochs (those in mini-batches where there are any).
With --work, stores and metrics are kept, and a run whose metrics are there is not repeated.
Exit status: 0 done, 1 a program failed, 2 a mistake of yours.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shlex
import statistics
import sys
from dataclasses import dataclass

from bench_programs import Failure, Mistake, main, output_of


@dataclass
class Recipe:
    """How a graph is trained; `model` holds for every way."""

    model: str
    full_epochs: int
    full_eval_every: int
    batch_epochs: int
    batch_eval_every: int
    train_fraction: float = 0  # --batch-train-fraction; shared among the data groups, so that a step has as many


# The fractions put all of few training vertices into each batch: an epoch is then one step, as on the full graph.
RECIPES = {
    "coauthor_physics": Recipe("--layers 2 --hidden 64 --dropout 0.5 --feature-norm row --lr 0.01", 60, 5, 100, 5,
                               0.0232),
    "amazon_computers": Recipe("--layers 2 --hidden 64 --dropout 0.5 --feature-norm row --lr 0.05", 120, 5, 300, 10,
                               0.1164),
    "arxiv_2023": Recipe("--layers 3 --hidden 128 --dropout 0.3 --norm rms --residual --lr 0.01", 60, 5, 30, 3),
}
WAYS = ("full", "minibatch", "finish", "data")
BATCHES_OF_THE_GRAPH = 8  # a batch is N/8 vertices, rounded up
DATA_GRID, DATA_GROUPS = "2x1x2x1", 2


@dataclass
class Run:
    seed: int
    best_epoch: int
    valid: float
    test: float
    seconds: float  # the median epoch


@dataclass
class Plan:
    run: str  # the way whose run it is: `finish` for `minibatch` beside it
    arguments: list[str]
    first_epochs: int  # before the switch to the full graph


# --- one run ------------------------------------------------------------------------------------------------------------


def num_vertices(options: argparse.Namespace, store: pathlib.Path) -> int:
    for line in output_of([options.orthant, "info", store]).splitlines():
        words = line.split()
        if words[:1] == ["vertices"]:
            return int(words[1])
    raise Failure(f"orthant info does not tell the vertices of {store}")


def plan(options: argparse.Namespace, recipe: Recipe, way: str, batch: int) -> Plan:
    if way == "full":
        epochs = options.epochs or recipe.full_epochs
        every, more, finish = recipe.full_eval_every, ["--mode", "full"], 0
    else:
        epochs = options.epochs or recipe.batch_epochs
        every, more = recipe.batch_eval_every, ["--mode", "minibatch", "--batch", str(batch)]
        finish = options.finish_full if way != "data" and "finish" in options.ways else 0
    groups = DATA_GROUPS if way == "data" else 1
    if way == "data":
        more += ["--grid", DATA_GRID]
    if way != "full" and recipe.train_fraction:
        more += ["--batch-train-fraction", f"{recipe.train_fraction / groups:.4f}"]
    if finish:
        more += ["--finish-full", str(finish)]
        way = "finish" if way == "minibatch" else way
    arguments = [*recipe.model.split(), "--epochs", str(epochs + finish), "--eval-every", str(every), *more]
    return Plan(way, arguments, epochs)


def records_of(metrics: pathlib.Path) -> list[dict]:
    """A line each; empty where the run did not end."""
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    return [json.loads(line) for line in lines] if lines and lines[-1].startswith('{"event":"done"') else []


def train(options: argparse.Namespace, store: pathlib.Path, metrics: pathlib.Path, seed: int, how: Plan) -> list[dict]:
    """The records of the epochs."""
    if not records_of(metrics):
        metrics.unlink(missing_ok=True)  # of a run that did not end
        words = ["train", "--graph", store, "--seed", seed, "--metrics", metrics, "--log-level", "error", *how.arguments]
        output_of([*options.mpirun, options.ranks, options.orthant, *words])
    epochs = [record for record in records_of(metrics) if record["event"] == "epoch"]
    if not epochs:
        raise Failure(f"{metrics} does not end with the record of a finished run")
    return epochs


def summary(seed: int, epochs: list[dict]) -> Run:
    """At the first of the epochs with the best validation accuracy."""
    best = max((epoch for epoch in epochs if "val_acc" in epoch), key=lambda epoch: epoch["val_acc"])
    seconds = statistics.median(epoch["seconds"] for epoch in epochs)
    return Run(seed, best["epoch"], best["val_acc"], best["test_acc"], seconds)


# --- graphs and the table -------------------------------------------------------------------------------------------------


def store_of(options: argparse.Namespace, graph: str, work: pathlib.Path) -> pathlib.Path:
    for folder in filter(None, (options.stores, work)):
        if (folder / f"{graph}-double.h5").exists():
            return folder / f"{graph}-double.h5"
    if options.data is None or not (options.data / graph).is_dir():
        raise Mistake(f"no {graph}-double.h5 in --stores and no folder {graph} in --data")
    store = work / f"{graph}-double.h5"
    output_of([options.orthant, "partition", "--input", options.data / graph, "-o", store])
    return store


def percent(values: list[float]) -> tuple[float, float]:
    """Mean and sample standard deviation."""
    return 100 * statistics.mean(values), 100 * (statistics.stdev(values) if len(values) > 1 else 0.0)


def print_row(way: str, num_epochs: int, runs: list[Run], full_mean: float | None) -> None:
    mean, deviation = percent([run.test for run in runs])
    below = "" if full_mean is None else f"{full_mean - mean:.2f}"
    seconds = statistics.median(run.seconds for run in runs)
    seeds = " ".join(f"{100 * run.test:.2f}" for run in runs)
    print(f"{way:10} {num_epochs:>7} {seconds:>8.3f} {mean:>7.2f} {deviation:>6.2f} {below:>7}   {seeds}", flush=True)


def measure(options: argparse.Namespace, graph: str, work: pathlib.Path) -> dict:
    recipe, store = RECIPES[graph], store_of(options, graph, work)
    batch = -(-num_vertices(options, store) // BATCHES_OF_THE_GRAPH)
    fraction = f", {recipe.train_fraction} of them training" if recipe.train_fraction else ""
    print(f"\n{graph}, batches of {batch}{fraction}: {recipe.model}")
    print(f"{'':10} {'epochs':>7} {'s/epoch':>8} {'test %':>7} {'+-':>6} {'below':>7}   each seed", flush=True)
    result: dict = {"graph": graph, "batch": batch, "ways": {}}
    full_mean = None
    for way in options.ways:
        how, runs, epochs = plan(options, recipe, way, batch), [], []
        for seed in range(options.seeds):
            epochs = train(options, store, work / f"{graph}-{how.run}-{seed}.jsonl", seed, how)
            epochs = epochs[: how.first_epochs] if way == "minibatch" else epochs
            runs.append(summary(seed, epochs))
        print_row(way, len(epochs), runs, full_mean)
        mean, deviation = percent([run.test for run in runs])
        full_mean = mean if way == "full" else full_mean
        result["ways"][way] = {"arguments": shlex.join(how.arguments), "test_percent": mean, "deviation": deviation,
                               "runs": [vars(run) for run in runs]}
    return result


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="*", default=[*RECIPES], help=f"of {', '.join(RECIPES)}; default all")
    parser.add_argument("--data", type=pathlib.Path, help="folder of data sets, from which stores are made")
    parser.add_argument("--stores", type=pathlib.Path, help="folder with GRAPH-double.h5, where they are made already")
    parser.add_argument("--work", type=pathlib.Path, help="keep stores and metrics here")
    parser.add_argument("--orthant", default="orthant")
    parser.add_argument("--mpirun", type=shlex.split, default=["mpirun", "-n"], help="up to the number of ranks")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=5, help="that many, from 0")
    parser.add_argument("--epochs", type=int, help="instead of the recipe's")
    parser.add_argument("--finish-full", type=int, default=50)
    parser.add_argument("--ways", type=lambda text: text.split(","), default=[*WAYS], help="default %(default)s")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures here")
    options = parser.parse_args(arguments)
    for known, given in ((RECIPES, options.graphs), (WAYS, options.ways)):
        for name in given:
            if name not in known:
                raise Mistake(f"unknown {name}: {', '.join(known)}")
    if options.seeds < 1:
        raise Mistake("--seeds must be at least 1")
    return options


def run(options: argparse.Namespace, work: pathlib.Path) -> None:
    results = [measure(options, graph, work) for graph in options.graphs]
    if options.json:
        options.json.write_text(json.dumps({"ranks": options.ranks, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main("accuracy_minibatch", parse, run))
