#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a GCN on full graphs and on batches of every sampler, over several seeds, and prints a table of accuracies.

  accuracy_samplers.py blocks coauthor_physics --data DATASETS --orthant build/bin/orthant --seeds 3 --work kept/

`blocks` is a graph of stochastic blocks, 3,000 vertices of degree 20, that is made here; the others are folders of --data.
A batch is N/2, N/4, N/16 or N/64 vertices (--parts), or 4 clusters of a store that was partitioned for it. A run is trained
on batches, and then --finish-full epochs on the full graph: both accuracies come from it, each at the best validation epoch
up to there. With --work, stores and metrics are kept, and a run whose metrics are there is not repeated.
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

from accuracy_minibatch import num_vertices, records_of, summary
from bench_programs import Mistake, main, output_of


@dataclass
class Recipe:
    model: str
    full_epochs: int
    batch_epochs: dict[int, int]  # by the parts of the graph: a smaller batch makes more steps an epoch
    eval_every: int


RECIPES = {
    "blocks": Recipe("--layers 2 --hidden 64 --dropout 0.5 --lr 0.01", 100, {2: 100, 4: 100, 16: 100, 64: 30}, 5),
    "coauthor_physics": Recipe("--layers 2 --hidden 64 --dropout 0.5 --feature-norm row --lr 0.01", 60,
                               {2: 40, 4: 40, 16: 20, 64: 10}, 5),
    "amazon_computers": Recipe("--layers 2 --hidden 64 --dropout 0.5 --feature-norm row --lr 0.05", 120,
                               {2: 80, 4: 80, 16: 40, 64: 20}, 5),
    "arxiv_2023": Recipe("--layers 3 --hidden 128 --dropout 0.3 --norm rms --residual --lr 0.01", 60,
                         {2: 20, 4: 20, 16: 15, 64: 10}, 5),
}
WAYS = ("uniform,rescale", "uniform,renormalize", "degree,rescale", "degree,renormalize", "clusters,rescale",
        "clusters,renormalize")
CLUSTERS_A_BATCH = 4


def store_of(options: argparse.Namespace, graph: str, work: pathlib.Path, parts: int) -> pathlib.Path:
    store = work / f"{graph}-{parts}.h5"
    if store.exists():
        return store
    if graph == "blocks":
        folder = work / "blocks"
        if not folder.exists():
            output_of([options.orthant, "generate", "--kind", "sbm", "--vertices", 3000, "--edges", 30000, "--features", 2,
                       "--classes", 20, "--seed", 1, "-o", folder])
    elif options.data is not None and (options.data / graph).is_dir():
        folder = options.data / graph
    else:
        raise Mistake(f"no folder {graph} in --data")
    output_of([options.orthant, "partition", "--input", folder, "--clusters", CLUSTERS_A_BATCH * parts, "-o", store])
    return store


def train(options: argparse.Namespace, store: pathlib.Path, metrics: pathlib.Path, seed: int, words: list) -> list[dict]:
    if not records_of(metrics):
        metrics.unlink(missing_ok=True)
        output_of([options.orthant, "train", "--graph", store, "--seed", seed, "--metrics", metrics, "--log-level", "error",
                   *words])
    return [record for record in records_of(metrics) if record["event"] == "epoch"]


def percent(values: list[float]) -> str:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{100 * statistics.mean(values):6.2f} +- {100 * deviation:4.2f}"


def measure(options: argparse.Namespace, graph: str, work: pathlib.Path) -> dict:
    recipe = RECIPES[graph]
    stores = {parts: store_of(options, graph, work, parts) for parts in options.parts}
    vertices = num_vertices(options, stores[options.parts[0]])
    model = [*recipe.model.split(), "--eval-every", recipe.eval_every]
    result: dict = {"graph": graph, "seeds": options.seeds, "runs": {}}

    def over_seeds(name: str, store: pathlib.Path, words: list, first_epochs: int) -> tuple[list[float], list[float]]:
        before, after = [], []
        for seed in range(options.seeds):
            epochs = train(options, store, work / f"{graph}-{name}-{seed}.jsonl", seed, words)
            before.append(summary(seed, epochs[:first_epochs]).test)
            after.append(summary(seed, epochs).test)
        result["runs"][name] = {"arguments": shlex.join(map(str, words)), "batches": before, "finished": after}
        return before, after

    full, _ = over_seeds("full", stores[options.parts[0]], [*model, "--epochs", recipe.full_epochs], recipe.full_epochs)
    print(f"\n{graph}, {options.seeds} seeds: full graph {percent(full)} after {recipe.full_epochs} epochs", flush=True)
    for parts in options.parts:
        batch, epochs = -(-vertices // parts), recipe.batch_epochs[parts]
        for way in options.ways:
            sampler, edges = way.split(",")
            words = [*model, "--mode", "minibatch", "--batch", batch, "--sampler", sampler, "--batch-edges", edges,
                     "--epochs", epochs + options.finish_full, "--finish-full", options.finish_full]
            before, after = over_seeds(f"{parts}-{sampler}-{edges}", stores[parts], words, epochs)
            print(f"N/{parts:<3} {sampler:9} {edges:12} {epochs:>4} epochs  {percent(before)}   finished  {percent(after)}",
                  flush=True)
    return result


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="*", default=[*RECIPES], help=f"of {', '.join(RECIPES)}; default all")
    parser.add_argument("--data", type=pathlib.Path, help="folder of data sets")
    parser.add_argument("--work", type=pathlib.Path, help="keep stores and metrics here")
    parser.add_argument("--orthant", default="orthant")
    parser.add_argument("--seeds", type=int, default=10, help="that many, from 0")
    parser.add_argument("--parts", type=lambda text: [int(word) for word in text.split(",")], default=[4, 16, 64])
    parser.add_argument("--ways", nargs="+", default=[*WAYS], help="default %(default)s")
    parser.add_argument("--finish-full", type=int, default=10)
    parser.add_argument("--json", type=pathlib.Path, help="write all figures here")
    options = parser.parse_args(arguments)
    for known, given in ((RECIPES, options.graphs), (WAYS, options.ways)):
        for name in given:
            if name not in known:
                raise Mistake(f"unknown {name}: {', '.join(known)}")
    if options.seeds < 1 or not set(options.parts) <= {2, 4, 16, 64}:
        raise Mistake("--seeds must be at least 1, and --parts of 2, 4, 16 and 64")
    return options


def run(options: argparse.Namespace, work: pathlib.Path) -> None:
    results = [measure(options, graph, work) for graph in options.graphs]
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main("accuracy_samplers", parse, run))
