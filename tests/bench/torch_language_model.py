#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains in PyTorch what `orthant train-lm` trained: from the same weights, on the same batches; and compares losses.

  orthant train-lm --preset nanogpt-cpu --tokens t.h5 --seed 1 --steps 0 --warmup-steps 0 --eval-every 0 --save-weights start.h5
  orthant train-lm --preset nanogpt-cpu --tokens t.h5 --seed 1 --eval-every 2000 --metrics m.jsonl
  torch_language_model.py --tokens t.h5 --weights start.h5 --metrics m.jsonl [--steps N] [--dtype fp64]

The settings are those of the run in the metrics: GPT-2's shape with a tied head and exact GELU, without biases, dropout or accumulation.
Which sequences a step has follows from the seed (tests/models/oracle/keyed.py, written from the description). Prints the largest relative
difference among the losses of the first 100 steps, and after the last step both losses over the whole validation part.
Exit status: 0 done, 2 a mistake of yours.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import sys

import h5py
import numpy as np
import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "models/oracle"))
import keyed  # noqa: E402

TOKENS = 13  # runtime::Purpose
NUM_COMPARED = 100


class Gpt(nn.Module):
    """Weights are [inputs x outputs] under the names of GPT-2; columns of queries, keys and values lie by head."""

    def __init__(self, arrays: dict[str, torch.Tensor], layers: int, heads: int, epsilon: float) -> None:
        super().__init__()
        self.layers, self.heads, self.epsilon = layers, heads, epsilon
        self.arrays = nn.ParameterDict({name.replace(".", "/"): nn.Parameter(array) for name, array in arrays.items()})

    def of(self, name: str) -> torch.Tensor:
        return self.arrays[name.replace(".", "/")]

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.layer_norm(x, x.shape[-1:], self.of(f"{name}.weight"), None, self.epsilon)

    def attention(self, x: torch.Tensor, prefix: str) -> torch.Tensor:
        batch, sequence, hidden = x.shape
        qkv = (x @ self.of(f"{prefix}.c_attn.weight")).view(batch, sequence, self.heads, 3, -1)
        q, k, v = qkv.permute(3, 0, 2, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).reshape(batch, sequence, hidden) @ self.of(f"{prefix}.c_proj.weight")

    def losses(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Of every token."""
        x = self.of("wte.weight")[tokens] + self.of("wpe.weight")[: tokens.shape[1]]
        for layer in range(self.layers):
            prefix = f"h.{layer}"
            x = x + self.attention(self.norm(x, f"{prefix}.ln_1"), f"{prefix}.attn")
            up = self.norm(x, f"{prefix}.ln_2") @ self.of(f"{prefix}.mlp.c_fc.weight")
            x = x + functional.gelu(up) @ self.of(f"{prefix}.mlp.c_proj.weight")
        logits = self.norm(x, "ln_f") @ self.of("wte.weight").T
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")


def rate_of(step: int, o: dict) -> float:
    """Of step 1, 2, ..: a warm-up, and half a cosine down to the least rate at the last step."""
    if step < o["warmup-steps"]:
        return o["lr"] * step / o["warmup-steps"]
    done = (step - o["warmup-steps"]) / (o["steps"] - o["warmup-steps"])
    return o["min-lr"] + (o["lr"] - o["min-lr"]) * (1 + math.cos(math.pi * done)) / 2


def begins_of(step: int, num_windows: int, o: dict) -> list[int]:
    """The first tokens of the sequences of a step."""
    begins = []
    for i in range((step - 1) * o["global-batch"], step * o["global-batch"]):
        epoch, place = divmod(i, num_windows)
        begins.append(keyed.Bijection(num_windows, keyed.stream_key(o["seed"], TOKENS, epoch, 0))(place))
    return begins


def windows(part: np.ndarray, begins: list[int], length: int) -> tuple[torch.Tensor, torch.Tensor]:
    pieces = torch.from_numpy(np.stack([part[begin : begin + length + 1] for begin in begins]))
    return pieces[:, :-1], pieces[:, 1:]


@torch.no_grad()
def validation_loss(model: Gpt, part: np.ndarray, length: int) -> float:
    """Over windows that do not overlap: every token but the first is predicted once."""
    total, num_whole = 0.0, (len(part) - 1) // length
    for first in range(0, num_whole, 64):
        begins = [length * i for i in range(first, min(num_whole, first + 64))]
        total += model.losses(*windows(part, begins, length)).double().sum().item()
    rest = len(part) - 1 - num_whole * length
    if rest > 0:
        total += model.losses(*windows(part, [num_whole * length], rest)).double().sum().item()
    return total / (len(part) - 1)


def settings_of(metrics: pathlib.Path) -> tuple[dict, list[dict]]:
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    o = next(line for line in lines if line["event"] == "run")["configuration"]
    o = {**o, **{name: float(o[name]) for name in ("lr", "min-lr", "weight-decay", "clip-norm", "dropout", "norm-epsilon")},
         **{name: int(o[name]) for name in ("layers", "heads", "kv-heads", "sequence", "global-batch", "steps", "warmup-steps", "seed", "accumulate")}}
    same = {"arch": "gpt2", "bias": False, "tied-head": True, "dropout": 0, "accumulate": 1, "lr-schedule": "cosine", "optimizer": "adamw"}
    for name, wanted in same.items():
        if o[name] != wanted:
            raise SystemExit(f"torch_language_model: the run has {name} {o[name]}, and this program knows only {wanted}")
    if o["kv-heads"] not in (0, o["heads"]) or not 0 < o["clip-norm"]:
        raise SystemExit("torch_language_model: the run has grouped heads or no --clip-norm, which this program does not know")
    return o, lines


def parser_of(description: str) -> argparse.ArgumentParser:
    """What a program that repeats a run of train-lm is asked for."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("tokens", "weights", "metrics"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, help="stop there; default: all of the run")
    parser.add_argument("--dtype", choices=("fp32", "fp64"), default="fp32")
    parser.add_argument("--threads", type=int, default=1)
    return parser


def main() -> int:
    asked = parser_of(__doc__).parse_args()
    torch.set_num_threads(asked.threads)
    o, lines = settings_of(asked.metrics)
    dtype = torch.float32 if asked.dtype == "fp32" else torch.float64
    with h5py.File(asked.weights) as file:
        arrays = {name: torch.from_numpy(array[()]).to(dtype) for name, array in file["parameters"].items()}
    with h5py.File(asked.tokens) as file:
        train, valid = (file[f"tokens/{part}"][()].astype(np.int64) for part in ("train", "valid"))
    model = Gpt(arrays, o["layers"], o["heads"], o["norm-epsilon"])
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": o["weight-decay"]},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=o["lr"], betas=tuple(float(beta) for beta in o["betas"]))
    theirs = {line["step"]: line["loss"] for line in lines if line["event"] == "step"}
    worst, last = 0.0, asked.steps or o["steps"]
    for step in range(1, last + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate_of(step, o)
        loss = model.losses(*windows(train, begins_of(step, len(train) - o["sequence"], o), o["sequence"])).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), o["clip-norm"])
        optimizer.step()
        if step <= NUM_COMPARED:
            worst = max(worst, abs(loss.item() - theirs[step]) / loss.item())
    print(f"torch {torch.__version__}, {asked.dtype}: losses of the first {min(last, NUM_COMPARED)} steps differ by {worst:.2e} at most, relatively")
    if last == o["steps"]:
        found = validation_loss(model, valid, o["sequence"])
        evaluations = [line["val_loss"] for line in lines if line["event"] == "eval" and line["step"] == last]
        print(f"after step {last}: validation loss {found:.4f}, Orthant {evaluations[0]:.4f}" if evaluations else f"validation loss {found:.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
