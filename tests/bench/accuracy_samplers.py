#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a GCN on full graphs and on batches of every sampler, over several seeds, and prints a table of accuracies.

  accuracy_samplers.py blocks coauthor_physics --data DATASETS --orthant build/bin/orthant --seeds 3 --work kept/
  accuracy_samplers.py --data DATASETS --work kept/ --ways full auto 16,clusters,renormalize
  accuracy_samplers.py --work kept/ --table

`blocks` is a graph of stochastic blocks, 3,000 vertices of degree 20, that is made here; the others are folders of --data.
A way is `full`, `auto` (--batch auto), or PARTS,SAMPLER,EDGES: batches of N/PARTS vertices, of clusters 4 of a store that was
partitioned for it. A run is trained on batches, and then --finish-full epochs on the full graph: both accuracies come from
it, each at the best validation epoch up to there. Every run is a line of runs.csv in --work; those that are there are not
repeated, and seeds come one after another, so that one may stop at any time and print what there is (--table).
Exit status: 0 done, 1 a program failed, 2 a mistake of yours.
"""

from __future__ import annotations

import argparse
import csv
import json
import pathlib
import re
import shlex
import statistics
import sys
import time
from dataclasses import dataclass

from accuracy_minibatch import num_vertices, summary
from bench_programs import Failure, Mistake, main, output_of


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
    "amazon_computers": Recipe("--layers 2 --hidden 64 --dropout 0.5 --feature-norm row --lr 0.01", 300,
                               {2: 150, 4: 100, 16: 100, 64: 60}, 10),
    "arxiv_2023": Recipe("--layers 3 --hidden 128 --dropout 0.3 --norm rms --residual --lr 0.01", 60,
                         {2: 20, 4: 20, 16: 15, 64: 10}, 5),
}
SAMPLERS, EDGES, PARTS = ("uniform", "degree", "clusters"), ("rescale", "renormalize"), (2, 4, 16, 64)
WAYS = ("full", "auto", *(f"{parts},{sampler},{edges}" for parts in PARTS[1:] for sampler in SAMPLERS for edges in EDGES))
CLUSTERS_A_BATCH, PARTS_OF_AUTO, PARTS_OF_FULL = 4, 2, 16
COLUMNS = ("graph", "way", "seed", "keeps", "valid", "test", "finished_valid", "finished_test", "seconds", "program", "arguments")


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


def words_of(options: argparse.Namespace, graph: str, way: str, work: pathlib.Path) -> tuple[pathlib.Path, list, int]:
    """Store, options of `train`, and epochs before the full graph."""
    recipe = RECIPES[graph]
    words = [*recipe.model.split(), "--eval-every", recipe.eval_every]
    if way == "full":
        return store_of(options, graph, work, PARTS_OF_FULL), [*words, "--epochs", recipe.full_epochs], recipe.full_epochs
    if way == "auto":
        parts, store, batch = PARTS_OF_AUTO, store_of(options, graph, work, PARTS_OF_FULL), ["--batch", "auto"]
    else:
        number, sampler, edges = way.split(",")
        parts = int(number)
        store = store_of(options, graph, work, parts)
        batch = ["--batch", -(-num_vertices(options, store) // parts), "--sampler", sampler, "--batch-edges", edges]
    epochs = recipe.batch_epochs[parts]
    finish = ["--epochs", epochs + options.finish_full, "--finish-full", options.finish_full]
    return store, [*words, "--mode", "minibatch", *batch, *finish], epochs


def train(options: argparse.Namespace, graph: str, way: str, seed: int, work: pathlib.Path) -> dict:
    """The line of a run."""
    store, words, first_epochs = words_of(options, graph, way, work)
    metrics = work / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    begin = time.perf_counter()
    said = output_of([options.orthant, "train", "--graph", store, "--seed", seed, "--metrics", metrics, "--log-level", "error", *words])
    seconds = time.perf_counter() - begin
    records = [json.loads(line) for line in metrics.read_text().splitlines()]
    epochs = [record for record in records if record["event"] == "epoch"]
    if records[-1]["event"] != "done" or not epochs:
        raise Failure(f"{metrics} does not end with the record of a finished run")
    keeps = re.search(r"a vertex keeps (\S+) of its", said)
    before, after = summary(seed, epochs[:first_epochs]), summary(seed, epochs)
    return dict(zip(COLUMNS, (graph, way, seed, keeps[1] if keeps else "", before.valid, before.test, after.valid, after.test,
                              f"{seconds:.1f}", records[0]["version"], shlex.join(map(str, words)))))


def rows_of(path: pathlib.Path) -> list[dict]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def percent(values: list[float]) -> str:
    return f"{100 * statistics.mean(values):.2f}" + (f" +- {100 * statistics.stdev(values):.2f}" if len(values) > 1 else "")


def print_table(rows: list[dict]) -> None:
    """As Markdown. `less` is what is lost against the full graph, in points of the means."""
    for graph in RECIPES:
        full = [float(row["finished_test"]) for row in rows if row["graph"] == graph and row["way"] == "full"]
        print(f"\n## {graph}\n\n| batch | sampler | edges | keeps | seeds | test % | finished | less than full |")
        print("|---|---|---|---|---|---|---|---|")
        for way in WAYS + tuple(f"2,{sampler},{edges}" for sampler in SAMPLERS for edges in EDGES):
            runs = [row for row in rows if row["graph"] == graph and row["way"] == way]
            if not runs:
                continue
            before, after = ([float(row[key]) for row in runs] for key in ("test", "finished_test"))
            parts, sampler, edges = way.split(",") if "," in way else (way, "", "")
            loss = f"{100 * (statistics.mean(full) - statistics.mean(after)):.2f}" if full and way != "full" else ""
            print(f"| {'N/' + parts if parts.isdigit() else parts} | {sampler} | {edges} | {runs[0]['keeps']} | {len(runs)} | "
                  f"{percent(before)} | {percent(after) if way != 'full' else ''} | {loss} |")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="*", default=[*RECIPES], help=f"of {', '.join(RECIPES)}; default all")
    parser.add_argument("--data", type=pathlib.Path, help="folder of data sets")
    parser.add_argument("--work", type=pathlib.Path, help="keep stores and runs here")
    parser.add_argument("--orthant", default="orthant")
    parser.add_argument("--seeds", type=int, default=10, help="that many, from 0")
    parser.add_argument("--ways", nargs="+", default=[*WAYS], help="default %(default)s")
    parser.add_argument("--finish-full", type=int, default=10)
    parser.add_argument("--table", action="store_true", help="only print the runs of --work as Markdown")
    options = parser.parse_args(arguments)
    every_way = ("full", "auto", *(f"{parts},{sampler},{edges}" for parts in PARTS for sampler in SAMPLERS for edges in EDGES))
    for known, given in ((RECIPES, options.graphs), (every_way, options.ways)):
        for name in given:
            if name not in known:
                raise Mistake(f"unknown {name}: {', '.join(known)}")
    if options.seeds < 1:
        raise Mistake("--seeds must be at least 1")
    return options


def run(options: argparse.Namespace, work: pathlib.Path) -> None:
    path = work / "runs.csv"
    done = {(row["graph"], row["way"], int(row["seed"])) for row in rows_of(path)}
    asked = [(graph, way, seed) for seed in range(options.seeds) for graph in options.graphs for way in options.ways]
    for graph, way, seed in asked if not options.table else []:
        if (graph, way, seed) in done:
            continue
        row = train(options, graph, way, seed, work)
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS)
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(row)
    print_table(rows_of(path))


if __name__ == "__main__":
    sys.exit(main("accuracy_samplers", parse, run))
