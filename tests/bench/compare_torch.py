#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the same GCN in PyTorch and in Orthant, in turns, and prints the ratios of time and memory.

  compare_torch.py --case rmat --ranks 2 --orthant build/bin/orthant
  compare_torch.py --graph graph.h5 --ranks 2 --python venv/bin/python --json result.json
  compare_torch.py --table --data DATASETS --ranks 2
  compare_torch.py --case rmat --ranks 2 --mode minibatch --batch 9796
  compare_torch.py --case products --ranks 1 --device cuda --orthant install/bin/orthant

Both train on the same store, from the same initial weights (`orthant train --epochs 0 --save-weights`), in fp32, with Adam
at the same rate. In full-graph mode the losses of the first epochs must agree to 1e-4, relative; in mini-batch mode the
two draw different batches, and the last losses are only printed. A round runs Orthant, then PyTorch with as many threads as
Orthant has ranks, then `orthant bench epoch`, which times an epoch beside its own SpMMs and GEMMs. The time of a run is the
median of its epochs without the first; the ratio is that of the medians of the rounds. Both compute the same: where
features are dense and not dropped out, A^ F of the first layer is kept from epoch to epoch (--no-cache: PyTorch computes it
in each), and the last layer multiplies by its weights first.

Memory is the peak of resident bytes: of the Python process, and summed over Orthant's ranks. With --device cuda it is that
of the device: what PyTorch's tensors held at most, and of Orthant the larger of what its arrays held at most and what is
less free at its end, which libraries are part of. PyTorch's products are then in fp32 without tf32, as Orthant's.

PyTorch is found in the interpreter of --python, which needs torch and numpy; PyG and torch_sparse are used where they can
be imported there (torch_trainer.py says how). Besides: mpirun, h5dump (Debian: hdf5-tools), and orthant.
Exit status: 0 done, 1 the losses differ or a program failed, 2 a mistake of yours.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field

HERE = pathlib.Path(__file__).resolve().parent
TRAINER = HERE / "torch_trainer.py"
TOLERANCE = 1e-4  # relative, of the losses
# A power-law graph of 48,980 vertices with 2,470,326 non-zeros in A, the size of ogbn-products / 50.
RMAT = ["--kind", "rmat", "--vertices", "48980", "--edges", "1514000", "--features", "100", "--classes", "47", "--seed", "1"]
# The size of ogbn-products: about 124 million non-zeros in A, for a device.
PRODUCTS = ["--kind", "rmat", "--vertices", "2450000", "--edges", "66000000", "--features", "100", "--classes", "47",
            "--seed", "1"]
TINY = ["--kind", "sbm", "--vertices", "300", "--edges", "1500", "--features", "12", "--classes", "5", "--seed", "1"]
GENERATED = {"rmat": RMAT, "products": PRODUCTS, "tiny": TINY}
IMPLEMENTATIONS = ("csr", "csr64", "pyg")
TABLE = ["coauthor_physics", "arxiv_2023", "road_moscow", "slashdot0902"]
MADE_UP = {"features": "100", "labels": "47", "split": "0.6,0.2,0.2"}  # where a data set has none
WHERE_TORCH_IS = "Debian's python3-torch is for /usr/bin/python3"


class Mistake(Exception):
    """What the user got wrong, in one line: status 2."""


class Failure(Exception):
    """What went wrong by itself: status 1."""


@dataclass
class Case:
    """A graph, ready for both."""

    name: str
    store: pathlib.Path
    arrays: pathlib.Path  # for torch_trainer.py
    weights_file: pathlib.Path  # for --init-from
    weights: pathlib.Path  # the same as raw numbers
    sizes: dict
    widths: list[int]


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


# --- running programs ---------------------------------------------------------------------------------------------------


def output_of(command: list, environment: dict[str, str] | None = None) -> str:
    """What the program prints. Orthant's one line of status 2 becomes ours."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=environment)
    except OSError as error:
        raise Mistake(f"cannot run {words[0]}: {error.strerror}") from None
    if done.returncode == 0:
        return done.stdout
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    said = next((line for line in lines if "error: " in line), lines[-1] if lines else "nothing on stderr").strip()
    if done.returncode == 2:
        raise Mistake(said.replace("error: ", ""))
    raise Failure(f"status {done.returncode} of {shlex.join(words)}: {said}")


def job(options: argparse.Namespace, *arguments, before: list | None = None) -> list:
    return [*options.mpirun, options.ranks, *(before or []), options.orthant, *arguments]


def alone(options: argparse.Namespace, *arguments) -> list:
    return [options.orthant, *arguments]


# --- preparing a case -----------------------------------------------------------------------------------------------------


def made_up(folder: pathlib.Path) -> list[str]:
    """The options of `orthant partition` that replace what the data set lacks."""
    has = lambda *names: any((folder / name).exists() for name in names)  # noqa: E731
    options = []
    if not has("npy/x.npy", "npy/x_indptr.npy", "raw/node-feat.csv.gz"):
        options += ["--random-features", MADE_UP["features"]]
    if not has("npy/labels.npy", "raw/node-label.csv.gz"):
        options += ["--random-labels", MADE_UP["labels"]]
    if not has("npy/train_idx.npy", "split"):
        options += ["--random-split", MADE_UP["split"]]
    return options


def make_store(options: argparse.Namespace, name: str, work: pathlib.Path) -> pathlib.Path:
    store = work / f"{name}-{options.permute}.h5"
    if store.exists():
        return store
    if name in GENERATED:
        folder, extra = work / name, []
        output_of(alone(options, "generate", *GENERATED[name], "-o", folder))
    else:
        folder = options.data / name if options.data else None
        if folder is None or not folder.is_dir():
            known = ", ".join([*GENERATED, *TABLE])
            raise Mistake(f"no case {name} ({known}, or a folder of --data, which is {options.data or 'not given'})")
        extra = made_up(folder)
    output_of(alone(options, "partition", "--input", folder, "-o", store, "--permute", options.permute, *extra))
    return store


def dump_weights(weights_file: pathlib.Path, folder: pathlib.Path, num_layers: int) -> None:
    if not shutil.which("h5dump"):
        raise Mistake("h5dump is not on PATH: install hdf5-tools (scripts/bootstrap.sh does)")
    folder.mkdir(exist_ok=True)
    for layer in range(num_layers):
        for part in ("weight", "bias"):
            name = f"layer{layer}.{part}"
            output_of(["h5dump", "-d", f"/parameters/{name}", "-b", "LE", "-o", folder / f"{name}.bin", weights_file])


def make_case(options: argparse.Namespace, name: str, work: pathlib.Path) -> Case:
    store = options.graph or make_store(options, name, work)
    own = work / f"{name}-for-torch"
    exported, arrays = own / "exported", own / "arrays"
    arrays.mkdir(parents=True, exist_ok=True)
    facts = output_of(alone(options, "info", store))
    if "normalised  sym" not in facts:
        raise Mistake(f"{store}: the comparison is for stores with --normalize sym; orthant info {store} shows this one's")
    output_of(alone(options, "export", store, "-o", exported, "--format", "npy"))
    sizes = json.loads(output_of([options.python, TRAINER, "prepare", exported, arrays]))
    shutil.rmtree(exported)
    widths = [sizes["num_features"], *[options.hidden] * (options.layers - 1), sizes["num_classes"]]
    case = Case(name, store, arrays, own / "weights.h5", own / "weights", sizes, widths)
    output_of(alone(options, "train", "--graph", store, "--epochs", 0, *model_of(options), "--save-weights",
                    case.weights_file))
    dump_weights(case.weights_file, case.weights, options.layers)
    if options.mode == "minibatch" and not (sizes["is_symmetric"] and not sizes["has_sparse_features"]):
        raise Mistake(f"{name}: --mode minibatch compares undirected graphs with dense features")
    if sizes["has_sparse_features"] and options.dropout > 0:
        raise Mistake(f"{name}: --dropout is compared on graphs with dense features")
    return case


# --- the two sides --------------------------------------------------------------------------------------------------------


def model_of(options: argparse.Namespace) -> list:
    return ["--layers", options.layers, "--hidden", options.hidden, "--dropout", options.dropout]


def epoch_seconds(seconds: list[float]) -> float:
    return statistics.median(seconds[1:])


def run_torch(options: argparse.Namespace, case: Case, implementation: str, work: pathlib.Path) -> Run:
    caches = options.caches and options.mode == "full" and options.dropout == 0 and not case.sizes["has_sparse_features"]
    settings = {"folder": str(case.arrays), "weights": str(case.weights), "sizes": case.sizes, "widths": case.widths,
                "implementation": implementation, "device": options.device, "caches": caches, "mode": options.mode, "batch": options.batch, "threads": options.ranks,
                "epochs": options.epochs, "lr": options.lr, "dropout": options.dropout, "seed": options.seed}
    path = work / "torch-settings.json"
    path.write_text(json.dumps(settings))
    threads = {name: str(options.ranks) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    done = json.loads(output_of([options.python, TRAINER, "train", path], os.environ | threads))
    return Run(epoch_seconds(done["seconds"]), done["losses"], done["peak_bytes"], done["held_bytes"])


def run_orthant(options: argparse.Namespace, case: Case, work: pathlib.Path) -> Run:
    metrics, peaks = work / "metrics.jsonl", work / "peaks.txt"
    metrics.unlink(missing_ok=True)
    peaks.unlink(missing_ok=True)
    mode = ["--mode", options.mode, *(["--batch", options.batch] if options.mode == "minibatch" else [])]
    arguments = ["train", "--graph", case.store, "--grid", options.grid, *mode, *model_of(options), "--optimizer", "adam",
                 "--lr", options.lr, "--epochs", options.epochs, "--eval-every", 0, "--seed", options.seed,
                 "--init-from", case.weights_file, "--metrics", metrics, *options.extra]
    output_of(job(options, *arguments, before=[sys.executable, "-I", "-S", HERE / "peak_memory.py", peaks]))
    records = [json.loads(line) for line in metrics.read_text().splitlines()]
    epochs = [record for record in records if record["event"] == "epoch"]
    if options.device == "cuda":
        in_arrays = records[-1]["device_memory_bytes"] * options.ranks
        held_bytes = records[-1]["device_memory_taken_bytes"]
        peak_bytes = max(in_arrays, held_bytes)
    else:
        peak_bytes = held_bytes = sum(int(line) for line in peaks.read_text().split())
    return Run(epoch_seconds([epoch["seconds"] for epoch in epochs]), [epoch["loss"] for epoch in epochs], peak_bytes,
               held_bytes)


def run_bench(options: argparse.Namespace, case: Case) -> dict | None:
    """An epoch beside its own SpMMs and GEMMs without anything around them; None where that cannot be had."""
    arguments = ["bench", "epoch", "--graph", case.store, "--grid", options.grid, *model_of(options), "--epochs",
                 options.epochs, "--lr", options.lr, "--seed", options.seed, *options.extra]
    try:
        text = output_of(job(options, *arguments))
    except (Mistake, Failure) as error:
        print(f"left out: {error}", file=sys.stderr)
        return None
    line = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    more = [key for key in line if key.startswith("device_memory_")]
    return {key: line[key] for key in ("seconds", "bare_seconds", "bare_spmm_seconds", "bare_gemm_seconds", "ratio", *more)}


# --- rounds ---------------------------------------------------------------------------------------------------------------


def compares_losses(options: argparse.Namespace) -> bool:
    return options.mode == "full" and options.dropout == 0


def check_losses(options: argparse.Namespace, case: Case, implementation: str, torch: Run, orthant: Run) -> None:
    if not compares_losses(options):
        return
    pairs = list(zip(torch.losses, orthant.losses))[:options.check_epochs]
    for epoch, (theirs, ours) in enumerate(pairs, start=1):
        if not abs(theirs - ours) <= TOLERANCE * abs(theirs):
            raise Failure(f"{case.name}, epoch {epoch}: the losses differ by more than {TOLERANCE:g}: torch "
                          f"({implementation}) {theirs:.9g}, orthant {ours:.9g}")


def compare(options: argparse.Namespace, case: Case, work: pathlib.Path) -> Result:
    result = Result(case.name, case.sizes, {name: [] for name in options.against})
    can_bench = options.mode == "full"
    for number in range(1, options.repeats + 1):
        result.loads.append(os.getloadavg()[0])
        result.orthant.append(run_orthant(options, case, work))
        for name in list(result.torch):
            try:
                result.torch[name].append(run_torch(options, case, name, work))
            except Failure as failure:  # such as what does not fit in the device's memory
                if len(result.torch) == 1:
                    raise
                print(f"left out: torch {name}: {failure}", file=sys.stderr)
                del result.torch[name]
                continue
            check_losses(options, case, name, result.torch[name][-1], result.orthant[-1])
        bench = run_bench(options, case) if can_bench else None
        can_bench = bench is not None
        if bench is not None:
            result.bench.append(bench)
        if not options.table:
            print_round(result, number)
    return result


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


# --- options --------------------------------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        raise Mistake(message)


def parse(arguments: list[str]) -> argparse.Namespace:
    text = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog="compare_torch.py", description=__doc__, formatter_class=text, allow_abbrev=False)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--graph", type=pathlib.Path, help="a store that orthant partition wrote")
    what.add_argument("--case", help="rmat, products, tiny, or the name of a folder in --data")
    what.add_argument("--table", action="store_true", help=f"a line each for {', '.join(TABLE)}")
    parser.add_argument("--data", type=pathlib.Path, help="folder of data sets (default: $ORTHANT_DATA/datasets)")
    parser.add_argument("--ranks", type=int, default=2, help="ranks of Orthant, and threads of PyTorch (2)")
    parser.add_argument("--grid", help="as orthant train takes it (1x1x1xRANKS)")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--dropout", type=float, default=0.0, help="probability; above 0 losses are not compared (0)")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=10, help="of each run; the first is not timed (10)")
    parser.add_argument("--repeats", type=int, default=5, help="rounds (5)")
    parser.add_argument("--check-epochs", type=int, default=5, help="epochs whose losses must agree (5)")
    parser.add_argument("--mode", choices=("full", "minibatch"), default="full")
    parser.add_argument("--batch", type=int, default=9796, help="vertices of a batch, with --mode minibatch (9796)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where both compute (cpu)")
    parser.add_argument("--against", default="auto", help="csr, csr64, pyg, or several with commas (torch_trainer.py tells "
                        "what they are); auto: csr, and pyg with torch_sparse")
    parser.add_argument("--no-cache", dest="caches", action="store_false", help="PyTorch computes the first layer's A^ F in "
                        "every epoch, as PyG's GCNConv does")
    parser.add_argument("--permute", default="double", help="as orthant partition takes it, for --case and --table (double)")
    parser.add_argument("--orthant", default="orthant", help="the program (orthant on PATH)")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has torch (the one that runs this)")
    parser.add_argument("--mpirun", default=os.environ.get("ORTHANT_MPIRUN", "mpirun -n"), help="what stands before the "
                        "number of ranks ($ORTHANT_MPIRUN, else mpirun -n)")
    parser.add_argument("--work", type=pathlib.Path, help="keep stores and arrays in this folder, and use those in it")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures to this file")
    parser.add_argument("--extra", default="", help="more options of orthant train, in one word: --extra='--overlap off'")
    options = parser.parse_args(arguments)
    options.mpirun, options.extra = shlex.split(options.mpirun), shlex.split(options.extra)
    if options.data is None and os.environ.get("ORTHANT_DATA"):
        options.data = pathlib.Path(os.environ["ORTHANT_DATA"]) / "datasets"
    check_options(options)
    options.check_epochs = min(options.check_epochs, options.epochs)
    options.grid = options.grid or f"1x1x1x{options.ranks}"  # the first layer's rows are split: its sum needs no message
    return options


def check_options(options: argparse.Namespace) -> None:
    for name, least in (("ranks", 1), ("layers", 1), ("hidden", 1), ("epochs", 2), ("repeats", 1), ("check_epochs", 1),
                        ("batch", 2)):
        if getattr(options, name) < least:
            raise Mistake(f"--{name.replace('_', '-')} {getattr(options, name)}: must be at least {least}")
    if not 0 <= options.dropout < 1:
        raise Mistake(f"--dropout {options.dropout}: must be from 0 to below 1")
    if options.device == "cuda" and options.mode == "minibatch":
        raise Mistake("--device cuda compares epochs of the full graph: leave out --mode minibatch")
    if options.graph and not options.graph.is_file():
        raise Mistake(f"--graph {options.graph}: there is no such file")
    if options.json and not options.json.parent.is_dir():
        raise Mistake(f"--json {options.json}: there is no such folder")
    if not shutil.which(options.orthant):
        raise Mistake(f"--orthant {options.orthant}: there is no such program")
    if not shutil.which(options.mpirun[0] if options.mpirun else ""):
        raise Mistake(f"--mpirun {shlex.join(options.mpirun)}: there is no such program")


def choose_implementations(options: argparse.Namespace, installed: dict) -> list[str]:
    names = options.against.split(",")
    if names == ["auto"]:
        names = ["csr", "pyg"] if installed["torch_sparse"] and installed["pyg"] and not options.table else ["csr"]
    for name in names:
        if name not in IMPLEMENTATIONS:
            raise Mistake(f"--against {options.against}: auto, or of {', '.join(IMPLEMENTATIONS)}")
        if name == "pyg" and not installed["pyg"]:
            raise Mistake(f"--against pyg: {options.python} cannot import torch_geometric: {installed['no_pyg']}")
    return names


def installed_in(options: argparse.Namespace) -> dict:
    try:
        found = json.loads(output_of([options.python, TRAINER, "probe"]))
    except Failure as failure:
        reason = str(failure).rsplit(": ", 1)[-1]
        raise Mistake(f"--python {options.python} needs torch and numpy: {reason}; {WHERE_TORCH_IS}") from None
    if found["torch"] is None:
        raise Mistake(f"--python {options.python} cannot import torch: {found['no_torch']}; {WHERE_TORCH_IS}")
    if options.device == "cuda" and found["cuda"] is None:
        raise Mistake(f"--device cuda: torch {found['torch']} in {options.python} has no CUDA device: {found['no_cuda']}")
    return found


def check_program(options: argparse.Namespace) -> None:
    """Orthant must be built for the device that is asked for."""
    text = output_of([options.orthant, "--version"])
    is_for_cuda = "(default Cuda)" in text
    if is_for_cuda != (options.device == "cuda"):
        built_for = "CUDA devices: take --device cuda" if is_for_cuda else "the host: take a build for CUDA devices"
        raise Mistake(f"--device {options.device}: {options.orthant} is built for {built_for}")


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


def run(options: argparse.Namespace, work: pathlib.Path) -> None:
    installed = installed_in(options)
    options.against = choose_implementations(options, installed)
    check_program(options)
    print_header(options, installed)
    names = TABLE if options.table else [options.case or options.graph.stem]
    results = []
    if options.table:
        print_table_head(options)
    for name in names:
        case = make_case(options, name, work)
        results.append(compare(options, case, work))
        (print_table_row if options.table else print_summary)(options, results[-1])
    if options.json:
        options.json.write_text(json.dumps(as_json(options, installed, results), indent=1) + "\n")


def main(name: str, parse_options: Callable, run_in: Callable) -> int:
    """run_in(options, folder) of --work, or of a folder that is gone afterwards. Returns the exit status."""
    try:
        options = parse_options(sys.argv[1:])
        if options.work:
            options.work.mkdir(parents=True, exist_ok=True)
            run_in(options, options.work)
        else:
            with tempfile.TemporaryDirectory(prefix=f"{name}-") as work:
                run_in(options, pathlib.Path(work))
    except (Mistake, OSError) as mistake:
        print(f"{name}.py: {mistake}", file=sys.stderr)
        return 2
    except Failure as failure:
        print(f"{name}.py: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main("compare_torch", parse, run))
