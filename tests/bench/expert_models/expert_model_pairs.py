#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares transformers with experts: losses and steps with those of PyTorch, validation losses with those of dense models.

  orthant tokenize --input DATASETS/tinyshakespeare/input.txt -o T.h5
  expert_model_pairs.py losses --tokens T.h5 --orthant build/bin/orthant --python TORCH/bin/python [--seeds 5] [--dtype fp64]
  expert_model_pairs.py times  --tokens T.h5 --orthant .. --python .. [--ranks 2 --grid 1x1x1x2] [--rounds 10] [--onednn] [--alloc glibc]
  expert_model_pairs.py dense  --tokens T.h5 --orthant .. [--seeds 5 --steps 400]

Models are of the preset nanogpt-cpu with 8 experts and top-1, then top-2 (--top-k); --extra sets other options of train-lm.

losses: of the first 100 steps, from the same weights on the same batches as in torch_experts.py; a table of the first seed, and the largest
difference of each. Where two experts are equally good for a token but for rounding, the two sides may choose different ones, and from there on
train different models. So the first step with other numbers of tokens per expert is printed, too, and the largest difference before it. In fp64
this is next to impossible.
times: rounds of a run of Orthant on N ranks and one of PyTorch with N threads; the time of a run is the median of its steps after the tenth.
The ratio is the median over rounds, with its 95 % interval of order statistics and its range. --onednn makes PyTorch multiply by oneDNN, not MKL.
dense: the last validation loss of Orthant over seeds. The dense model has K times the width within the feed-forward part, for the K experts of a
token: as many FLOPs per token but those of the router. With the same seed, both have the same batches. Prints mean and deviation of the
difference, and how often the experts of a layer were chosen in the last step: largest over mean.
Exit status: 0 done, 1 a program failed, 2 a mistake of yours.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import shlex
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from bench_programs import Failure, Mistake, job, main, output_of  # noqa: E402
from language_model_pairs import NUM_WARM, interval  # noqa: E402

# glibc keeps its memory and uses huge pages, which may be faster for PyTorch (graph_model_pairs.py).
GLIBC = {"THP_MEM_ALLOC_ENABLE": "1", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.arena_max=1:"
                                                        "glibc.malloc.trim_threshold=1099511627776:glibc.malloc.top_pad=67108864"}


def train(options: argparse.Namespace, metrics: pathlib.Path, *more) -> list[dict]:
    """The records of a run of train-lm."""
    output_of(job(options, "train-lm", "--preset", "nanogpt-cpu", "--tokens", options.tokens, "--grid", options.grid, "--log-level", "error",
                  "--force", "--metrics", metrics, *more, *options.extra))
    records = [json.loads(line) for line in metrics.read_text().splitlines()]
    if records[-1]["event"] != "done":
        raise Failure(f"{metrics} does not end with the record of a finished run")
    return records


def of_experts(options: argparse.Namespace, top_k: int) -> list:
    return ["--experts", options.experts, "--top-k", top_k, "--expert-axis", options.expert_axis]


class Pair:
    """A model with experts, which both sides train from the same weights."""

    def __init__(self, options: argparse.Namespace, work: pathlib.Path, top_k: int, seed: int) -> None:
        self.options, self.metrics, self.weights = options, work / f"top{top_k}.jsonl", work / f"top{top_k}.h5"
        self.model = [*of_experts(options, top_k), "--compute-dtype", options.dtype, "--seed", seed, "--eval-every", 0]
        train(options, self.metrics, *self.model, "--steps", 0, "--warmup-steps", 0, "--save-weights", self.weights)

    def orthant(self, *schedule) -> list[dict]:
        """The records of the steps, without one that is more than --steps."""
        records = train(self.options, self.metrics, *self.model, *schedule)
        return [record for record in records if record["event"] == "step"][: self.options.steps]

    def torch(self) -> dict:
        """Trains what Orthant has trained before."""
        options = self.options
        own = {key: str(options.ranks) for key in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        if options.alloc == "glibc":
            own |= GLIBC
        script = pathlib.Path(__file__).with_name("torch_experts.py")
        said = output_of([options.python, script, "--tokens", options.tokens, "--weights", self.weights, "--metrics", self.metrics,
                          "--steps", options.steps, "--dtype", options.dtype, "--threads", options.ranks,
                          *([f"--{options.by}"] if options.by else [])], os.environ | own)
        return json.loads(said.splitlines()[-1])


def compare_losses(options: argparse.Namespace, work: pathlib.Path) -> None:
    for top_k in options.top_k:
        for seed in range(1, options.seeds + 1):
            pair = Pair(options, work, top_k, seed)
            # The rate rises all the time: with 100 steps, these are the first ones of the preset.
            ours = pair.orthant("--steps", options.steps + 1, "--warmup-steps", options.steps)
            theirs = pair.torch()
            pairs = list(zip((record["loss"] for record in ours), theirs["losses"], strict=True))
            differences = [abs(our - their) for our, their in pairs]
            choices = [[layer["tokens"] for layer in record["experts"]] for record in ours]
            parted = next((i for i in range(len(ours)) if choices[i] != theirs["choices"][i]), None)
            if seed == 1:
                print(f"top-{top_k} of {options.experts}, seed 1\nstep  orthant   torch {theirs['torch']}")
                print("\n".join(f"{step:4}  {our:.6f}  {their:.6f}" for step, (our, their) in enumerate(pairs, 1)))
            said = "the same choices in all" if parted is None else (
                f"other choices from step {parted + 1} on, {max(differences[:parted], default=0):.2e} at most before it")
            print(f"top-{top_k} seed {seed}  {len(ours)} losses in {options.dtype} differ by {max(differences):.2e} at most; {said}", flush=True)


def compare_times(options: argparse.Namespace, work: pathlib.Path) -> None:
    for top_k in options.top_k:
        pair, rounds = Pair(options, work, top_k, seed=1), []
        schedule = ["--steps", options.steps, "--warmup-steps", NUM_WARM]
        for number in range(options.rounds):
            load = os.getloadavg()[0]
            ours = statistics.median(record["seconds"] for record in pair.orthant(*schedule)[NUM_WARM:])
            theirs = statistics.median(pair.torch()["seconds"][NUM_WARM:])
            rounds.append((ours, theirs))
            print(f"top-{top_k} round {number + 1}  orthant {ours:.5f}  torch {theirs:.5f}  ratio {ours / theirs:.3f}  load {load:.1f}", flush=True)
        ratios = [ours / theirs for ours, theirs in rounds]
        low, high = interval(ratios)
        how = "".join(f", {word}" for word in (options.by, options.alloc) if word)
        print(f"top-{top_k} of {options.experts}, {options.ranks} ranks {options.grid}: orthant {statistics.median(r[0] for r in rounds):.5f} s, torch{how} "
              f"{statistics.median(r[1] for r in rounds):.5f} s, ratio {statistics.median(ratios):.3f} ({low:.3f} to {high:.3f}; range "
              f"{min(ratios):.3f} to {max(ratios):.3f}), {len(rounds)} rounds", flush=True)


def compare_with_dense(options: argparse.Namespace, work: pathlib.Path) -> None:
    for top_k in options.top_k:
        differences, flops = [], []
        for seed in range(1, options.seeds + 1):
            same = ["--seed", seed, "--steps", options.steps, "--warmup-steps", options.steps // 4, "--eval-every", options.steps]
            sparse = train(options, work / "experts.jsonl", *of_experts(options, top_k), *same)
            o = sparse[0]["configuration"]
            width = top_k * (o["feed-forward"] or 4 * o["hidden"])
            dense = train(options, work / "dense.jsonl", "--feed-forward", width, *same)
            scores = [[record["val_loss"] for record in records if record["event"] == "eval"][-1] for records in (sparse, dense)]
            last = next(record for record in reversed(sparse) if record["event"] == "step")
            load = ", ".join(f"{layer['imbalance']:.2f}" for layer in last["experts"])
            differences.append(scores[0] - scores[1])
            flops = [records[-1]["flop_per_token"] for records in (sparse, dense)]
            print(f"top-{top_k} seed {seed}  experts {scores[0]:.4f}  dense {scores[1]:.4f}  difference {differences[-1]:+.4f}  "
                  f"largest load over mean, by layer: {load}", flush=True)
        deviation = statistics.stdev(differences) if len(differences) > 1 else math.nan
        print(f"top-{top_k} of {options.experts} against a dense width of {width}: {statistics.mean(differences):+.4f} +- {deviation:.4f} of "
              f"{len(differences)} seeds, {options.steps} steps; FLOPs per token {flops[0]:.4g} and {flops[1]:.4g}", flush=True)


MODES = {"losses": compare_losses, "times": compare_times, "dense": compare_with_dense}
STEPS = {"losses": 100, "times": 60, "dense": 400}


def run(options: argparse.Namespace, work: pathlib.Path) -> None:
    MODES[options.mode](options, work)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--tokens", type=pathlib.Path, required=True)
    parser.add_argument("--orthant", default="orthant")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with PyTorch and h5py")
    parser.add_argument("--mpirun", type=shlex.split, default=["mpirun", "-n"], help="up to the number of ranks")
    parser.add_argument("--ranks", type=int, default=1, help="of Orthant; threads of PyTorch")
    parser.add_argument("--grid", default="auto")
    parser.add_argument("--expert-axis", type=int, default=1)
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--top-k", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, help=f"default: {', '.join(f'{steps} of {mode}' for mode, steps in STEPS.items())}")
    parser.add_argument("--rounds", type=int, default=10, help="of times")
    parser.add_argument("--seeds", type=int, default=5, help="of losses and dense: 1, 2, ..")
    parser.add_argument("--dtype", choices=("fp32", "fp64"), default="fp32", help="of losses")
    parser.add_argument("--extra", type=shlex.split, default=[], help="more options for train-lm, as in --extra='--layers 6'")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--compile", dest="by", action="store_const", const="compile", help="PyTorch through torch.compile")
    how.add_argument("--onednn", dest="by", action="store_const", const="onednn", help="products of PyTorch by oneDNN, in fp32")
    parser.add_argument("--alloc", choices=("plain", "glibc"), default="plain", help="how PyTorch gets memory; glibc: keeps it, in huge pages")
    parser.add_argument("--work", type=pathlib.Path, help="keep weights and metrics here")
    options = parser.parse_args(arguments)
    options.steps = options.steps or STEPS[options.mode]
    if options.mode == "times" and options.steps <= NUM_WARM:
        raise Mistake(f"--steps must be more than {NUM_WARM}")
    if options.by == "onednn" and options.dtype == "fp64":
        raise Mistake("--onednn is for fp32")
    if min(options.steps, options.rounds, options.seeds, options.ranks) < 1:
        raise Mistake("--steps, --rounds, --seeds and --ranks must be at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main("expert_model_pairs", parse, run))
