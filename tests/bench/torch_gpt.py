#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times steps of a GPT in PyTorch: what `orthant train-lm` is compared with.

  torch_gpt.py --layers 4 --hidden 128 --heads 4 --sequence 64 --batch 12 --threads 2 [--compile] [--bf16] [--steps 60]
  torch_gpt.py .. --products       only the products with weights of a step, forward and back, by themselves

Learned positions, tied head, no biases, exact GELU, no dropout, scaled_dot_product_attention, AdamW (fused if this PyTorch has it for
processors), gradients clipped to a norm of 1; random tokens of a vocabulary of 65. Prints the median of seconds per step after a warm-up of 10.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(hidden, bias=False)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.proj = nn.Linear(hidden, hidden, bias=False)
        self.norm2 = nn.LayerNorm(hidden, bias=False)
        self.up = nn.Linear(hidden, 4 * hidden, bias=False)
        self.down = nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, sequence, hidden = x.shape
        q, k, v = (t.view(batch, sequence, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(hidden, dim=2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, sequence, hidden))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, o: argparse.Namespace) -> None:
        super().__init__()
        self.tokens = nn.Embedding(o.vocabulary, o.hidden)
        self.positions = nn.Embedding(o.sequence, o.hidden)
        self.blocks = nn.ModuleList(Block(o.hidden, o.heads) for _ in range(o.layers))
        self.norm = nn.LayerNorm(o.hidden, bias=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm(x), self.tokens.weight)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def seconds_of_products(o: argparse.Namespace) -> float:
    """Of a step: X W, dZ W^T and X^T dZ of each weight, the medians of --steps runs."""
    rows, total = o.batch * o.sequence, 0.0
    block = ((o.hidden, 3 * o.hidden), (o.hidden, o.hidden), (o.hidden, 4 * o.hidden), (4 * o.hidden, o.hidden))
    for (inner, outer), count in [*((shape, o.layers) for shape in block), ((o.hidden, o.vocabulary), 1)]:
        x, w, dz = torch.randn(rows, inner), torch.randn(inner, outer), torch.randn(rows, outer)
        seconds = []
        for _ in range(o.steps + 3):
            begin = time.perf_counter()
            torch.mm(x, w), torch.mm(dz, w.T), torch.mm(x.T, dz)
            seconds.append(time.perf_counter() - begin)
        total += count * statistics.median(seconds[3:])
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 4), ("hidden", 128), ("heads", 4), ("sequence", 64), ("batch", 12), ("vocabulary", 65),
                          ("threads", 2), ("steps", 60)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--compile", action="store_true", help="through torch.compile")
    parser.add_argument("--bf16", action="store_true", help="under torch.autocast in bf16")
    parser.add_argument("--products", action="store_true", help="time the products with weights by themselves")
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    torch.manual_seed(0)
    if o.products:
        print(f"torch {torch.__version__}, {o.threads} threads, products: {seconds_of_products(o):.6f} s per step")
        return
    model = Gpt(o)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1, fused=True)
    run = torch.compile(model) if o.compile else model
    batches = torch.randint(o.vocabulary, (o.steps, 2, o.batch, o.sequence))
    seconds = []
    for tokens, targets in batches:
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=o.bf16):
            loss = run(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - begin)
    print(f"torch {torch.__version__}, {o.threads} threads{', compiled' if o.compile else ''}{', bf16' if o.bf16 else ''}: "
          f"{statistics.median(seconds[10:]):.6f} s per step, least {min(seconds[10:]):.6f}")


if __name__ == "__main__":
    main()
