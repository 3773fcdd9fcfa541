#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times steps of a GPT in Orthant and in PyTorch in turns, the same threads, and prints each pair and the ratio of their times.

  language_model_pairs.py --tokens T.h5 --python TORCH/bin/python --orthant build/bin/orthant --pairs 20
  language_model_pairs.py .. --layers 6 --hidden 384 --heads 6 --sequence 256 --batch 8 --steps 16 --grid 1x2x1x1

Both in fp32, PyTorch by torch_gpt.py. The time of a run is the median of its steps after the tenth. The ratio of all is the median,
its 95 % interval that of order statistics. At the end, the products with weights of a step by themselves, in PyTorch, and what
train-lm's flops take at the rate of its largest product. Exit status: 0 done, 1 a program failed, 2 a mistake of yours.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import re
import shlex
import statistics
import sys

from bench_programs import Failure, Mistake, main, output_of

NUM_WARM = 10


def interval(values: list[float]) -> tuple[float, float]:
    """Of the median, with at least 95 %: the k-th smallest and the k-th largest, k by the binomial distribution of 1/2."""
    n, left, k = len(values), 0.0, 0
    while k < n // 2 and left + math.comb(n, k) / 2**n <= 0.025:
        left += math.comb(n, k) / 2**n
        k += 1
    ordered = sorted(values)
    place = max(k - 1, 0)
    return ordered[place], ordered[n - 1 - place]


def torch_seconds(options: argparse.Namespace, *more) -> float:
    script = pathlib.Path(__file__).with_name("torch_gpt.py")
    sizes = [word for key in ("layers", "hidden", "heads", "sequence", "batch", "steps") for word in (f"--{key}", getattr(options, key))]
    said = output_of([options.python, script, *sizes, "--threads", options.ranks, *more])
    return float(re.search(r"([0-9.]+) s per step", said)[1])


def orthant_run(options: argparse.Namespace, work: pathlib.Path) -> tuple[float, dict]:
    """The median step, and the record of the end."""
    metrics = work / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    output_of([*options.mpirun, options.ranks, options.orthant, "train-lm", "--tokens", options.tokens, "--preset", "nanogpt-cpu",
               "--layers", options.layers, "--hidden", options.hidden, "--heads", options.heads, "--sequence", options.sequence,
               "--global-batch", options.batch, "--grid", options.grid, "--steps", options.steps, "--warmup-steps", NUM_WARM,
               "--eval-every", 0, "--log-level", "error", "--metrics", metrics])
    records = [json.loads(line) for line in metrics.read_text().splitlines()]
    seconds = [record["seconds"] for record in records if record["event"] == "step"]
    if records[-1]["event"] != "done" or len(seconds) != options.steps:
        raise Failure(f"{metrics} does not end with the record of a finished run")
    return statistics.median(seconds[NUM_WARM:]), records[-1]


def run(options: argparse.Namespace, work: pathlib.Path) -> None:
    pairs, done = [], {}
    for number in range(options.pairs):
        load = os.getloadavg()[0]
        ours, done = orthant_run(options, work)
        theirs = torch_seconds(options, *(["--compile"] if options.compile else []))
        pairs.append((ours, theirs))
        print(f"pair {number + 1}  orthant {ours:.5f}  torch {theirs:.5f}  ratio {ours / theirs:.3f}  load {load:.1f}", flush=True)
    ratios = [ours / theirs for ours, theirs in pairs]
    low, high = interval(ratios)
    flops = done["flop_per_token"] * options.batch * options.sequence
    print(f"orthant {options.grid} {statistics.median(p[0] for p in pairs):.5f} s, torch {statistics.median(p[1] for p in pairs):.5f} s, "
          f"ratio {statistics.median(ratios):.3f} ({low:.3f} to {high:.3f}), {len(pairs)} pairs")
    print(f"products with weights in torch {torch_seconds(options, '--products'):.5f} s; all flops of train-lm at its measured product's "
          f"rate {flops / done['gemm_flop_per_second']:.5f} s")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=pathlib.Path, required=True, help="token file with a vocabulary of 65")
    parser.add_argument("--orthant", default="orthant")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with PyTorch")
    parser.add_argument("--mpirun", type=shlex.split, default=["mpirun", "-n"], help="up to the number of ranks")
    parser.add_argument("--ranks", type=int, default=2, help="of Orthant; threads of PyTorch")
    parser.add_argument("--grid", default="1x1x1x2")
    for name, default in (("layers", 4), ("hidden", 128), ("heads", 4), ("sequence", 64), ("batch", 12), ("steps", 60), ("pairs", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--compile", action="store_true", help="PyTorch through torch.compile")
    parser.add_argument("--work", type=pathlib.Path, help="keep the last metrics here")
    options = parser.parse_args(arguments)
    if options.steps <= NUM_WARM or options.pairs < 1:
        raise Mistake(f"--steps must be more than {NUM_WARM}, --pairs at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main("language_model_pairs", parse, run))
