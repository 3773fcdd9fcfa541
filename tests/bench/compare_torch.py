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
import os
import pathlib
import statistics
import sys

from bench_programs import Failure, Mistake, job, main, output_of
from compare_cases import TABLE, TRAINER, Case, make_case, model_of
from compare_options import check_program, choose_implementations, installed_in, parse
from compare_report import (Result, Run, as_json, compares_losses, print_header, print_round, print_summary, print_table_head,
                            print_table_row)

HERE = pathlib.Path(__file__).resolve().parent
TOLERANCE = 1e-4  # relative, of the losses


# --- the two sides --------------------------------------------------------------------------------------------------------


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


if __name__ == "__main__":
    sys.exit(main("compare_torch", lambda arguments: parse(arguments, __doc__), run))
