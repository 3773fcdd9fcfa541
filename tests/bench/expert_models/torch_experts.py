#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains in PyTorch a transformer with experts that `orthant train-lm` trained: from the same weights, on the same batches.

  orthant train-lm --preset nanogpt-cpu --experts 8 --tokens t.h5 --seed 1 --steps 0 --warmup-steps 0 --eval-every 0 --save-weights start.h5
  orthant train-lm --preset nanogpt-cpu --experts 8 --tokens t.h5 --seed 1 --eval-every 0 --metrics m.jsonl
  torch_experts.py --tokens t.h5 --weights start.h5 --metrics m.jsonl [--steps N] [--dtype fp64] [--threads N] [--compile | --onednn]

Settings and batches are those of the run in the metrics, as in torch_language_model.py. A layer of experts sorts the choices of all tokens by
expert, gathers the rows in that order, and multiplies the rows of each expert by its weights in one grouped product. No token is dropped.
PyTorch multiplies in fp32 by MKL, which does not use AVX-512 on processors of AMD. --onednn multiplies by the oneDNN in PyTorch instead, through
an operator that is meant for its compiler. It compiles a program per shape, so the rows of an expert are padded to a multiple of 16 with zeros.
Prints one line of JSON: `losses` and `seconds` of the steps, and `choices`, how many tokens chose each expert of each layer. A step is timed
from the loss to the update, without drawing its batch.
Exit status: 0 done, 1 a mistake of yours.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time

import h5py
import numpy as np
import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import torch_language_model as language_model  # noqa: E402

# What the model below knows; a run with another value is refused.
ONLY = {"moe-every": 1, "shared-experts": 0, "capacity": "none", "router-noise": 0}
PADDING = 16  # rows, of --onednn


def onednn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a b"""
    if a.numel() == 0:
        return a.new_zeros(len(a), b.shape[1])
    return torch.ops.mkldnn._linear_pointwise(a, b.T, None, "none", [], "")


class OneDnnProduct(torch.autograd.Function):
    """grouped_product() by oneDNN."""

    @staticmethod
    def forward(ctx, rows: torch.Tensor, weights: torch.Tensor, counts: list[int]) -> torch.Tensor:
        ctx.save_for_backward(rows, weights)
        ctx.counts = counts
        parts = [onednn(part, weight) for part, weight in zip(rows.split(counts), weights)]
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> tuple:
        rows, weights = ctx.saved_tensors
        of_rows, of_weights = [], torch.empty_like(weights)
        for e, (part, of_part) in enumerate(zip(rows.split(ctx.counts), gradient.split(ctx.counts))):
            of_rows.append(onednn(of_part, weights[e].T))
            of_weights[e] = onednn(part.T, of_part)
        return torch.cat(of_rows) if len(of_rows) > 1 else of_rows[0], of_weights, None


def grouped_product(rows: torch.Tensor, weights: torch.Tensor, counts: torch.Tensor, by_onednn: bool) -> torch.Tensor:
    """rows [R x inputs] in the order of the experts, counts[e] of expert e; weights [E x inputs x outputs]."""
    if by_onednn:
        return OneDnnProduct.apply(rows, weights, counts.tolist())
    if rows.dtype == torch.float64:  # grouped_mm does not take it
        return torch.cat([part @ weight for part, weight in zip(rows.split(counts.tolist()), weights)])
    return functional.grouped_mm(rows, weights, offs=counts.cumsum(0).to(torch.int32))


class ExpertGpt(language_model.Gpt):
    """With experts in every layer. Their weights are stacked: [E x hidden x width] and [E x width x hidden]."""

    def __init__(self, arrays: dict[str, torch.Tensor], o: dict, by_onednn: bool) -> None:
        arrays = dict(arrays)
        for layer in range(o["layers"]):
            for product in ("c_fc", "c_proj"):
                names = [f"h.{layer}.mlp.experts.{e}.{product}.weight" for e in range(o["experts"])]
                arrays[f"h.{layer}.mlp.{product}.weight"] = torch.stack([arrays.pop(name) for name in names])
        super().__init__(arrays, o["layers"], o["heads"], o["norm-epsilon"])
        self.experts, self.top_k, self.balance, self.z = o["experts"], o["top-k"], o["balance-loss"], o["z-loss"]
        self.by_onednn = by_onednn

    def product(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return OneDnnProduct.apply(x, weight[None], [len(x)]) if self.by_onednn else x @ weight

    def attention(self, x: torch.Tensor, prefix: str) -> torch.Tensor:
        batch, sequence, hidden = x.shape
        qkv = self.product(x.flatten(0, 1), self.of(f"{prefix}.c_attn.weight")).view(batch, sequence, self.heads, 3, -1)
        y = functional.scaled_dot_product_attention(*qkv.permute(3, 0, 2, 1, 4), is_causal=True).transpose(1, 2)
        return self.product(y.reshape(-1, hidden), self.of(f"{prefix}.c_proj.weight")).view_as(x)

    def feed_forward(self, x: torch.Tensor, prefix: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The branch of tokens x [N x hidden], the losses of the router (Switch Transformer, 2101.03961; ST-MoE, 2202.08906), and how often
        each expert was chosen."""
        logits = x @ self.of(f"{prefix}.router.weight")
        probabilities = logits.softmax(1)
        weights, choices = probabilities.topk(self.top_k, dim=1)
        if self.top_k > 1:
            weights = weights / weights.sum(1, keepdim=True)
        choices = choices.flatten()
        counts = (choices[:, None] == torch.arange(self.experts)).sum(0)
        order = choices.argsort(stable=True)
        tokens, held = order // self.top_k, counts
        rows = x.index_select(0, tokens)
        if self.by_onednn:
            held = (counts + PADDING - 1) // PADDING * PADDING
            places = torch.arange(len(order)) + (held.cumsum(0) - held - counts.cumsum(0) + counts).repeat_interleave(counts)
            rows = x.new_zeros(held.sum(), x.shape[1]).index_copy(0, places, rows)

        up = grouped_product(rows, self.of(f"{prefix}.c_fc.weight"), held, self.by_onednn)
        down = grouped_product(functional.gelu(up), self.of(f"{prefix}.c_proj.weight"), held, self.by_onednn)
        if self.by_onednn:
            down = down.index_select(0, places)
        branch = torch.zeros_like(x).index_add(0, tokens, down * weights.flatten().index_select(0, order)[:, None])

        losses = self.balance * self.experts * (counts / len(choices) * probabilities.mean(0)).sum()
        if self.z > 0:
            losses = losses + self.z * logits.logsumexp(1).square().mean()
        return branch, losses, counts

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The mean loss of the tokens, the sum of the routers' losses, and how often experts were chosen [layers x E]."""
        x = self.of("wte.weight")[tokens] + self.of("wpe.weight")[: tokens.shape[1]]
        of_routers, choices = x.new_zeros(()), []
        for layer in range(self.layers):
            x = x + self.attention(self.norm(x, f"h.{layer}.ln_1"), f"h.{layer}.attn")
            branch, losses, counts = self.feed_forward(self.norm(x, f"h.{layer}.ln_2").flatten(0, 1), f"h.{layer}.mlp")
            x, of_routers = x + branch.view_as(x), of_routers + losses
            choices.append(counts)
        logits = self.product(self.norm(x, "ln_f").flatten(0, 1), self.of("wte.weight").T)
        return functional.cross_entropy(logits, targets.flatten()), of_routers, torch.stack(choices)


def settings_of(metrics: pathlib.Path) -> dict:
    o, _ = language_model.settings_of(metrics)
    for name, wanted in ONLY.items():
        if o[name] != wanted:
            raise SystemExit(f"torch_experts: the run has {name} {o[name]}, and this program knows only {wanted}")
    if o["experts"] == 0:
        raise SystemExit("torch_experts: the run has no experts")
    return {**o, **{name: float(o[name]) for name in ("balance-loss", "z-loss")}}


def train(model: ExpertGpt, part: np.ndarray, o: dict, num_steps: int, compiled: bool) -> dict:
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": o["weight-decay"]},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=o["lr"], betas=tuple(float(beta) for beta in o["betas"]), fused=True)
    run = torch.compile(model) if compiled else model
    losses, seconds, all_choices = [], [], []
    for step in range(1, num_steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = language_model.rate_of(step, o)
        begins = language_model.begins_of(step, len(part) - o["sequence"], o)
        batch = language_model.windows(part, begins, o["sequence"])
        start = time.perf_counter()
        loss, of_routers, choices = run(*batch)
        (loss + of_routers).backward()
        nn.utils.clip_grad_norm_(model.parameters(), o["clip-norm"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
        losses.append(loss.item())
        all_choices.append(choices.tolist())
    return {"torch": torch.__version__, "losses": losses, "seconds": seconds, "choices": all_choices}


def main() -> int:
    parser = language_model.parser_of(__doc__)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--compile", action="store_true", help="through torch.compile")
    how.add_argument("--onednn", action="store_true", help="products by oneDNN, in fp32")
    asked = parser.parse_args()
    if asked.onednn and asked.dtype == "fp64":
        raise SystemExit("torch_experts: --onednn is for fp32")
    torch.set_num_threads(asked.threads)
    o = settings_of(asked.metrics)
    dtype = torch.float32 if asked.dtype == "fp32" else torch.float64
    with h5py.File(asked.weights) as file:
        arrays = {name: torch.from_numpy(array[()]).to(dtype) for name, array in file["parameters"].items()}
    with h5py.File(asked.tokens) as file:
        part = file["tokens/train"][()].astype(np.int64)
    print(json.dumps(train(ExpertGpt(arrays, o, asked.onednn), part, o, asked.steps or o["steps"], asked.compile)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
