#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the same model with and without some options of `orthant train`, over several seeds, and prints what they change.

  accuracy_pairs.py arxiv_2023 --data DATASETS --seeds 10 --model='--norm rms' --change='--operand-dtype bf16' --work kept/
  accuracy_pairs.py cora citeseer amazon_photo amazon_computers --data DATASETS --seeds 20 --change='--operand-dtype bf16'

A run's accuracy is that on the test vertices at the epoch with the best validation accuracy among those evaluated, and after
the last epoch. Differences are paired by seed; their 95 % interval is Student's. With --work, stores and metrics are kept, and
a run whose metrics are there is not repeated.
Exit status: 0 done, 1 a program failed, 2 a mistake of yours.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import shlex
import statistics
import sys

from accuracy_minibatch import Plan, store_of, summary, train
from bench_programs import Mistake, main


def half_width(differences: list[float]) -> float:
    """Of the 95 % interval of the mean, by the expansion of Student's quantile in 1/f, f degrees of freedom."""
    z, f = statistics.NormalDist().inv_cdf(0.975), len(differences) - 1
    t = z + (z**3 + z) / (4 * f) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * f**2) + (
        3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * f**3)
    return t * statistics.stdev(differences) / len(differences) ** 0.5


def measure(options: argparse.Namespace, graph: str, work: pathlib.Path) -> dict:
    store = store_of(options, graph, work)
    common = [*options.model, "--epochs", str(options.epochs), "--eval-every", str(options.eval_every)]
    accuracies: dict[str, list[list[float]]] = {"best": [[], []], "end": [[], []]}
    for seed in range(options.seeds):
        for side, more in enumerate(([], options.change)):
            arguments = [*common, *more]
            name = re.sub(r"[^A-Za-z0-9.]+", "_", " ".join([graph, *arguments, str(seed)]))
            epochs = train(options, store, work / f"{name}.jsonl", seed, Plan("full", arguments, options.epochs))
            accuracies["best"][side].append(100 * summary(seed, epochs).test)
            accuracies["end"][side].append(100 * [epoch for epoch in epochs if "test_acc" in epoch][-1]["test_acc"])
    cells, result = [f"{graph}, `{shlex.join(common)}`", str(options.seeds)], {"graph": graph, "arguments": common}
    for when, (without, changed) in accuracies.items():
        differences = [y - x for x, y in zip(without, changed)]
        mean, width = statistics.mean(differences), half_width(differences)
        cells += [f"{statistics.mean(without):.2f}, {statistics.mean(changed):.2f}",
                  f"{mean:.2f} ({mean - width:.2f} to {mean + width:.2f})"]
        result[when] = {"without": without, "with": changed, "difference": mean, "half_width": width}
    print(f"| {' | '.join(cells)} |", flush=True)
    return result


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--change", type=shlex.split, required=True, help="options of orthant train that are compared")
    parser.add_argument("--model", type=shlex.split, default=[], help="options of both sides")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--eval-every", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=10, help="that many, from 0")
    parser.add_argument("--data", type=pathlib.Path, help="folder of data sets, from which stores are made")
    parser.add_argument("--stores", type=pathlib.Path, help="folder with GRAPH-double.h5, where they are made already")
    parser.add_argument("--work", type=pathlib.Path, help="keep stores and metrics here")
    parser.add_argument("--orthant", default="orthant")
    parser.add_argument("--mpirun", type=shlex.split, default=["mpirun", "-n"], help="up to the number of ranks")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path, help="write all figures here")
    options = parser.parse_args(arguments)
    if options.seeds < 2:
        raise Mistake("--seeds must be at least 2")
    if options.eval_every < 1 or options.epochs < options.eval_every:
        raise Mistake("--epochs must reach an evaluation")
    return options


def run(options: argparse.Namespace, work: pathlib.Path) -> None:
    print("| graph | seeds | without, with at the best epoch | difference and its 95 % interval | at the end | difference |")
    print("|---|---|---|---|---|---|")
    results = [measure(options, graph, work) for graph in options.graphs]
    if options.json:
        options.json.write_text(json.dumps({"change": options.change, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main("accuracy_pairs", parse, run))
