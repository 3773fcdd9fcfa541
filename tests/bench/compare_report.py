# SPDX-License-Identifier: Apache-2.0
"""What compare_torch.py has measured, and how it is printed: a line per round, a summary or a line of a table, JSON."""

from __future__ import annotations

import argparse
import math
import os
import statistics
from dataclasses import dataclass, field

from bench_programs import output_of


@dataclass
class Run:
    """One process of PyTorch, or one job of Orthant."""

    seconds: float  # an epoch
    losses: list[float]
    peak_bytes: int
    held_bytes: int = 0  # on a device: PyTorch's reserve, what Orthant's libraries hold, too


@dataclass
class Result:
    case: str
    sizes: dict
    torch: dict[str, list[Run]] = field(default_factory=dict)  # by implementation
    orthant: list[Run] = field(default_factory=list)
    bench: list[dict] = field(default_factory=list)  # what `orthant bench epoch` says
    loads: list[float] = field(default_factory=list)  # of the machine, before each round


def compares_losses(options: argparse.Namespace) -> bool:
    return options.mode == "full" and options.dropout == 0


def median_seconds(runs: list[Run]) -> float:
    return statistics.median(run.seconds for run in runs)


def median_bytes(runs: list[Run]) -> float:
    return statistics.median(run.peak_bytes for run in runs)


def bare_ratio(result: Result) -> float:
    """Epoch over the sum of its own SpMMs and GEMMs, both timed in turns in one job of `orthant bench epoch`."""
    return statistics.median(bench["ratio"] for bench in result.bench)


def worst_difference(options: argparse.Namespace, result: Result) -> float:
    return max(abs(theirs - ours) / abs(theirs)
               for runs in result.torch.values() for one, other in zip(runs, result.orthant)
               for theirs, ours in list(zip(one.losses, other.losses))[:options.check_epochs])


def print_round(result: Result, number: int) -> None:
    ours = result.orthant[-1]
    parts = [f"round {number}"]
    for name, runs in result.torch.items():
        parts.append(f"torch {name} {runs[-1].seconds:.4f} s {runs[-1].peak_bytes / 2**20:.0f} MiB")
    parts.append(f"orthant {ours.seconds:.4f} s {ours.peak_bytes / 2**20:.0f} MiB")
    parts += [f"{runs[-1].seconds / ours.seconds:.2f}x {name}" for name, runs in result.torch.items()]
    if result.bench:
        parts.append(f"{result.bench[-1]['ratio']:.2f}x of its products")
    print("  ".join([*parts, f"load {result.loads[-1]:.1f}"]), flush=True)


def print_summary(options: argparse.Namespace, result: Result) -> None:
    ours = median_seconds(result.orthant)
    print(f"\n{'':<14}{'s / epoch':>12}{'ratio':>9}{'MiB':>9}{'ratio':>9}{'last loss':>14}")
    for name, runs in result.torch.items():
        print(f"{'torch ' + name:<14}{median_seconds(runs):>12.4f}{median_seconds(runs) / ours:>8.2f}x"
              f"{median_bytes(runs) / 2**20:>9.0f}{median_bytes(runs) / median_bytes(result.orthant):>8.2f}x"
              f"{runs[-1].losses[-1]:>14.6f}")
    print(f"{'orthant':<14}{ours:>12.4f}{'':>9}{median_bytes(result.orthant) / 2**20:>9.0f}{'':>9}"
          f"{result.orthant[-1].losses[-1]:>14.6f}")
    if result.bench:
        of = {key: statistics.median(bench[f"bare{key}_seconds"] for bench in result.bench) for key in ("", "_spmm", "_gemm")}
        print(f"{'its products':<14}{of['']:>12.4f}   bare SpMMs {of['_spmm']:.4f} and GEMMs {of['_gemm']:.4f}; an epoch beside "
              f"them takes {bare_ratio(result):.2f}x")
    if compares_losses(options):
        print(f"losses of the first {options.check_epochs} epochs agree to {worst_difference(options, result):.1e}")
    else:
        print("losses are not compared: the two draw their own " + ("batches" if options.mode == "minibatch" else "dropout"))


def print_table_head(options: argparse.Namespace) -> None:
    print(f"{'graph':<20}{'vertices':>10}{'A+I':>11}{'features':>9}{'classes':>8}"
          + "".join(f"{'torch ' + name:>12}" for name in options.against) + f"{'orthant':>10}"
          + "".join(f"{'ratio ' + name:>11}" for name in options.against) + f"{'x of bare':>10}{'losses to':>10}", flush=True)


def print_table_row(options: argparse.Namespace, result: Result) -> None:
    ours, sizes = median_seconds(result.orthant), result.sizes
    theirs = [median_seconds(result.torch[name]) if name in result.torch else math.nan for name in options.against]
    bare = f"{bare_ratio(result):.2f}" if result.bench else "-"
    agree = f"{worst_difference(options, result):.1e}" if compares_losses(options) else "-"
    print(f"{result.case:<20}{sizes['num_vertices']:>10}{sizes['num_entries']:>11}{sizes['num_features']:>9}"
          f"{sizes['num_classes']:>8}" + "".join(f"{seconds:>12.4f}" for seconds in theirs) + f"{ours:>10.4f}"
          + "".join(f"{seconds / ours:>10.2f}x" for seconds in theirs) + f"{bare:>10}{agree:>10}", flush=True)


def as_json(options: argparse.Namespace, installed: dict, results: list[Result]) -> dict:
    def runs(these: list[Run]) -> dict:
        return {"seconds": [run.seconds for run in these], "median_seconds": median_seconds(these),
                "peak_bytes": [run.peak_bytes for run in these], "held_bytes": [run.held_bytes for run in these],
                "losses": these[0].losses}

    cases = [{"case": result.case, **result.sizes, "torch": {name: runs(these) for name, these in result.torch.items()},
              "orthant": runs(result.orthant), "bench_epoch": result.bench, "load": result.loads,
              "ratio": {name: median_seconds(these) / median_seconds(result.orthant)
                        for name, these in result.torch.items()},
              "memory_ratio": {name: median_bytes(these) / median_bytes(result.orthant)
                               for name, these in result.torch.items()}} for result in results]
    keys = ("device", "caches", "ranks", "grid", "mode", "batch", "layers", "hidden", "dropout", "lr", "epochs", "repeats", "seed", "permute",
            "extra")
    return {"installed": installed, "orthant": output_of([options.orthant, "--version"]).splitlines(), "cores": os.cpu_count(),
            "settings": {key: getattr(options, key) for key in keys}, "cases": cases}


def print_header(options: argparse.Namespace, installed: dict) -> None:
    torch = f"torch {installed['torch']} in {installed['python']}"
    others = [f"{label} {installed[key] or 'no'}" for label, key in (("PyG", "pyg"), ("torch_sparse", "torch_sparse"))]
    print(f"{torch}, {', '.join(others)}; compared: {', '.join(options.against)}")
    where = installed["cuda"] if options.device == "cuda" else f"{options.ranks} threads"
    print(output_of([options.orthant, "--version"]).splitlines()[0], f"on {options.ranks} ranks, grid {options.grid};",
          f"torch on {where}; {os.cpu_count()} cores; {options.repeats} rounds of {options.epochs} epochs")
    busy = os.getloadavg()[0]
    if busy > 0.5:
        print(f"the machine is busy (load {busy:.1f}): the figures below are not those of an idle one")
    print(flush=True)
