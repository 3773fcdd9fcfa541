#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times epochs of GraphSAGE (mean), GIN and GAT in Orthant and in its CPU peers in turns, and prints Markdown tables.

  graph_model_pairs.py --orthant build/bin/orthant --torch ENV/bin/python --dgl ENV/bin/python --work DIR
  graph_model_pairs.py .. --graph DATASETS/arxiv_2023 --models gat --threads 1 --backends pyg,dgl

ENV are environments with torch and torch_geometric, and with DGL. --graph: rmat (48,980 vertices) or a data set; the store, the peers'
copy and the initial weights are made in --work and kept. sage and gin have 3 layers of 128 columns, gat 2 layers, the hidden one with 8
heads of 8 columns; no dropout, Adam, fp32. The peers (graph_model_peers.py says which) start once per table and sleep while others run.
A round is a run of Orthant, one of `bench epoch`, and a turn of each peer: one epoch to warm up, and as many as fit in --turn-seconds, but
at least one and at most --epochs. The peers keep their memory: 10 GB in all, most of it PyG's. N ranks stand against N threads. The first
loss of each peer must agree with Orthant's to 1e-5, relative, and the next two to 1e-3: Adam's first steps are about the signs of
gradients, so rounding tells there.

seconds: median over rounds of the median epoch. ratio: over Orthant's of the same round, median (least to most). bare: the products of
Orthant's epoch by themselves, if `bench epoch` has them. Exit status: 0 done, 1 the losses differ or a program failed, 2 a mistake of yours.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field

from bench_programs import Failure, Mistake, alone, main, output_of
from compare_cases import RMAT, made_up

PEERS = pathlib.Path(__file__).with_name("graph_models") / "graph_model_peers.py"
MODELS = {"sage": ["--model", "sage", "--aggregator", "mean", "--layers", "3", "--hidden", "128"],
          "gin": ["--model", "gin", "--layers", "3", "--hidden", "128"],
          "gat": ["--model", "gat", "--layers", "2", "--hidden", "64", "--heads", "8", "--activation", "elu"]}
BACKENDS = {"sage": "pyg,edge_index,torch_csr,dgl_copy", "gin": "pyg,edge_index,torch_csr,dgl_copy", "gat": "pyg,torch_csr,dgl"}
TITLES = {"sage": "GraphSAGE, mean, 3 x 128", "gin": "GIN, 3 x 128", "gat": "GAT, 2 layers, 8 heads of 8"}
TOLERANCES = (1e-5, 1e-3, 1e-3)  # of the losses of the first epochs, relative
LEAST_ROUNDS = 2
NUM_COMPARED = len(TOLERANCES)  # epochs, which are the warm-up, too
HUGE = str(1 << 40)
# glibc keeps its memory, and uses huge pages: faster for most peers than without (peers' allocations are large).
GLIBC = {"THP_MEM_ALLOC_ENABLE": "1", "GLIBC_TUNABLES": f"glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.arena_max=1:"
                                                        f"glibc.malloc.trim_threshold={HUGE}:glibc.malloc.top_pad=67108864"}
PRELOADED = {"THP_MEM_ALLOC_ENABLE": "1", "MALLOC_CONF": "thp:always,metadata_thp:auto,oversize_threshold:0,dirty_decay_ms:-1,muzzy_decay_ms:-1",
             "TCMALLOC_RELEASE_RATE": "0"}


@dataclass
class Case:
    """A graph and a model, ready for both sides."""

    model: str
    store: pathlib.Path
    exported: pathlib.Path
    weights: pathlib.Path


@dataclass
class Side:
    """What has been measured: the median epoch of each round."""

    seconds: list[float] = field(default_factory=list)
    peak_mib: float = 0
    differs: float = 0
    versions: str = ""


# --- preparing ------------------------------------------------------------------------------------------------------------


def make_case(options: argparse.Namespace, model: str) -> Case:
    name = options.graph if options.graph == "rmat" else pathlib.Path(options.graph).resolve().name
    folder = options.work / name if options.graph == "rmat" else pathlib.Path(options.graph)
    case = Case(model, options.work / f"{name}.h5", options.work / f"{name}-npy", options.work / f"{name}-{model}-weights.h5")
    if options.graph != "rmat" and not folder.is_dir():
        raise Mistake(f"--graph {folder}: neither rmat nor a folder")
    if not case.store.exists():
        if options.graph == "rmat":
            output_of(alone(options, "generate", *RMAT, "-o", folder, "--force"))
        extra = [] if options.graph == "rmat" else made_up(folder)
        output_of(alone(options, "partition", "--input", folder, "-o", case.store, *extra))
    if not case.exported.exists():
        output_of(alone(options, "export", case.store, "-o", case.exported, "--format", "npy"))
    if not case.weights.exists():
        output_of(alone(options, "train", "--graph", case.store, *MODELS[model], "--dropout", 0, "--epochs", 0, "--save-weights", case.weights))
    return case


# --- turns ----------------------------------------------------------------------------------------------------------------


class Peer:
    """A process of graph_model_peers.py, which trains whenever it is asked."""

    def __init__(self, options: argparse.Namespace, case: Case, name: str, num_threads: int):
        self.name, threads = name, str(num_threads)
        python = options.dgl if name.startswith("dgl") else options.torch
        own = {key: threads for key in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        own |= {"MKL_DYNAMIC": "FALSE", "DGLBACKEND": "pytorch", "MKL_THREADING_LAYER": "GNU", "CUDA_VISIBLE_DEVICES": ""}
        own |= {} if options.alloc == "plain" else GLIBC if options.alloc == "glibc" else PRELOADED | {"LD_PRELOAD": options.alloc}
        words = [python, PEERS, "--model", case.model, "--backend", name, "--graph", case.exported, "--weights", case.weights, "--threads", threads, "--serve"]
        self.errors = options.work / f"{name}-errors.txt"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen([str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                                            env=os.environ | own)

    def train(self, num_epochs: int) -> dict:
        try:
            self.process.stdin.write(f"{num_epochs}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the empty answer says so, too
        answer = self.process.stdout.readline()
        if not answer:
            said = [line for line in self.errors.read_text().splitlines() if line.strip()]
            raise Failure(f"{self.name} ended: {said[-1] if said else 'nothing on stderr'}")
        return json.loads(answer)

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def run_orthant(options: argparse.Namespace, case: Case, num_ranks: int) -> dict:
    metrics = options.work / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    output_of([*options.mpirun, num_ranks, options.orthant, "train", "--graph", case.store, *MODELS[case.model], "--dropout", 0, "--lr", options.lr, "--epochs",
               NUM_COMPARED + options.epochs, "--eval-every", 0, "--init-from", case.weights, "--metrics", metrics, *options.extra])
    records = [json.loads(line) for line in metrics.read_text().splitlines()]
    taken = [record for record in records if record["event"] == "epoch"]
    start = next(record for record in records if record["event"] == "run")
    return {"seconds": [epoch["seconds"] for epoch in taken][NUM_COMPARED:], "losses": [epoch["loss"] for epoch in taken],
            "peak_mib": records[-1]["peak_memory_bytes"] * num_ranks / 2**20,
            "versions": f"orthant {start['version']}, grid {start['grid']}, {start['schedule']}"}


def bare_run(options: argparse.Namespace, case: Case, num_ranks: int) -> dict | None:
    """An epoch beside its products by themselves; None if bench epoch does not know the model."""
    try:
        said = output_of([*options.mpirun, num_ranks, options.orthant, "bench", "epoch", "--graph", case.store, *MODELS[case.model], "--dropout", 0,
                          "--epochs", options.epochs, "--stream-mib", 8, "--gemm-size", 256, *options.extra])
    except Mistake:
        return None
    return json.loads(next(line for line in said.splitlines() if line.startswith("{")))


def check_losses(case: Case, name: str, theirs: list[float], ours: list[float]) -> float:
    """Returns how much the first ones differ."""
    differences = [abs(a - b) / abs(b) for a, b in zip(theirs, ours)]
    if not all(differs <= tolerance for differs, tolerance in zip(differences, TOLERANCES)):
        raise Failure(f"{case.model}: the losses of {name} are {theirs[:NUM_COMPARED]}, those of Orthant {ours[:NUM_COMPARED]}")
    return differences[0]


# --- a table --------------------------------------------------------------------------------------------------------------


def measure(options: argparse.Namespace, case: Case, num_threads: int, ends_at: float) -> tuple[dict[str, Side], list[dict]]:
    names = [name for name in (options.backends or BACKENDS[case.model]).split(",") if name]
    sides, bare, peers, turns = {"orthant": Side()}, [], [], {}
    try:
        ours = run_orthant(options, case, num_threads)
        for name in names:
            peers.append(Peer(options, case, name, num_threads))
            warm = peers[-1].train(NUM_COMPARED)
            sides[name] = Side(differs=check_losses(case, name, warm["losses"], ours["losses"]), versions=warm["versions"])
            turns[name] = max(1, min(options.epochs, int(options.turn_seconds / min(warm["seconds"]))))
        for number in range(1, options.rounds + 1):
            if number > LEAST_ROUNDS and time.monotonic() > ends_at:
                break
            done = {"orthant": run_orthant(options, case, num_threads)}
            found = bare_run(options, case, num_threads) if number == 1 or bare else None
            bare += [found] if found else []
            done |= {peer.name: peer.train(1 + turns[peer.name]) for peer in peers}
            for name, turn in done.items():
                sides[name].seconds.append(statistics.median(turn["seconds"][name != "orthant":]))
                sides[name].peak_mib = max(sides[name].peak_mib, turn["peak_mib"])
            sides["orthant"].versions = done["orthant"]["versions"]
            print(f"{case.model}, {num_threads}, round {number}: " + "  ".join(f"{name} {side.seconds[-1]:.4f}" for name, side in sides.items()) +
                  f"  load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    finally:
        for peer in peers:
            peer.end()
    return sides, bare


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def print_table(case: Case, num_threads: int, sides: dict[str, Side], bare: list[dict]) -> None:
    ours = sides["orthant"].seconds
    print(f"\n### {TITLES[case.model]}, {case.store.stem}, {num_threads} {'ranks or threads' if num_threads > 1 else 'rank or thread'}\n")
    print("| | seconds per epoch | times Orthant's | MiB | first loss differs by |\n|---|---|---|---|---|")
    for name, side in sides.items():
        ratio = "" if name == "orthant" else spread([theirs / own for theirs, own in zip(side.seconds, ours)])
        differs = "" if name == "orthant" else f"{side.differs:.0e}"
        print(f"| {name} | {statistics.median(side.seconds):.4f} | {ratio} | {side.peak_mib:,.0f} | {differs} |")
    if bare:
        median = lambda key: statistics.median(line[key] for line in bare)  # noqa: E731
        print(f"\n`bench epoch`: {median('seconds'):.4f} s, its products by themselves {median('bare_seconds'):.4f} s (sparse {median('bare_spmm_seconds'):.4f}, "
              f"dense {median('bare_gemm_seconds'):.4f}): ratio {spread([line['ratio'] for line in bare])}")
    print("\n" + "; ".join(dict.fromkeys(side.versions for side in sides.values())), flush=True)


def processor() -> str:
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown processor")


def run(options: argparse.Namespace, work: pathlib.Path) -> None:
    options.work, results = work.resolve(), []
    blas = [line.split(maxsplit=1)[1] for line in output_of(alone(options, "--version")).splitlines() if line.startswith("BLAS")]
    load = os.getloadavg()[0]
    print(f"{processor()}, {os.cpu_count()} processors, {time.strftime('%Y-%m-%d')}, load {load:.1f}{'' if load < 0.5 else ': NOT IDLE'}; {', '.join(blas)}; "
          f"{options.rounds} rounds of up to {options.epochs} epochs", flush=True)
    tables = list(itertools.product(options.models.split(","), map(int, options.threads.split(","))))
    ends_at = time.monotonic() + 60 * options.minutes
    for number, (model, num_threads) in enumerate(tables):
        case, now = make_case(options, model), time.monotonic()
        sides, bare = measure(options, case, num_threads, now + (ends_at - now) / (len(tables) - number))
        print_table(case, num_threads, sides, bare)
        results.append({"model": model, "graph": case.store.stem, "threads": num_threads, "bare": bare,
                        "sides": {name: vars(side) for name, side in sides.items()}})
    print("\n```\n" + shlex.join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]) + "\n```")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orthant", default="orthant")
    parser.add_argument("--torch", default=sys.executable, help="an interpreter with torch and torch_geometric")
    parser.add_argument("--dgl", default=sys.executable, help="an interpreter with DGL")
    parser.add_argument("--mpirun", type=shlex.split, default=["mpirun", "-n"], help="up to the number of ranks")
    parser.add_argument("--graph", default="rmat", help="rmat, or the folder of a data set")
    parser.add_argument("--models", default="sage,gin,gat")
    parser.add_argument("--threads", default="2,1", help="ranks of Orthant and threads of the peers, with commas")
    parser.add_argument("--backends", help="with commas, instead of each model's own")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=5, help="most of a turn")
    parser.add_argument("--turn-seconds", type=float, default=2, help="of a peer's turn")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no more rounds of a table when its share of this is over, but two")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--alloc", default="glibc", help="of the peers: plain, glibc (keeps memory, huge pages), or a library to preload")
    parser.add_argument("--extra", type=shlex.split, default=[], help="more options of orthant train, in one word")
    parser.add_argument("--work", type=pathlib.Path, help="keep graphs and weights here")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args(arguments)
    unknown = [model for model in options.models.split(",") if model not in MODELS]
    if unknown or options.rounds < 1 or options.epochs < 1 or not all(word.isdigit() and int(word) > 0 for word in options.threads.split(",")):
        raise Mistake(f"--models {options.models}, --threads {options.threads}: models are {', '.join(MODELS)}; threads, --rounds and --epochs are positive")
    return options


if __name__ == "__main__":
    sys.exit(main("graph_model_pairs", parse, run))
