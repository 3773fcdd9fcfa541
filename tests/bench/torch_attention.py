# SPDX-License-Identifier: Apache-2.0
"""What attention_cost.cpp measures, in PyTorch: scaled_dot_product_attention on views of one matrix of queries, keys and
values, one thread, fp32. One line of JSON each; seconds are min, median, max over calls."""
import json
import time

import torch

WARM_UP, CALLS = 5, 50


def times_of(call):
    seconds = []
    for i in range(WARM_UP + CALLS):
        begin = time.perf_counter()
        call()
        if i >= WARM_UP:
            seconds.append(time.perf_counter() - begin)
    seconds.sort()
    return seconds[0], seconds[len(seconds) // 2], seconds[-1]


def measure(sequences, tokens, heads, head_dim):
    qkv = torch.rand(sequences * tokens, 3 * heads * head_dim) * 2 - 1
    qkv.requires_grad_()
    d_out = torch.rand(sequences, heads, tokens, head_dim)

    def forward():
        q, k, v = (part.view(sequences, tokens, heads, head_dim).transpose(1, 2) for part in qkv.chunk(3, dim=1))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    out = forward()

    def backward():
        return torch.autograd.grad(out, qkv, d_out, retain_graph=True)

    flops = 2 * sequences * heads * head_dim * tokens * (tokens + 1)
    for name, call, count in (("forward", forward, flops), ("backward", backward, flops * 5 // 2)):
        seconds = times_of(call)
        print(json.dumps({"pass": name, "sequences": sequences, "tokens": tokens, "heads": heads, "head_dim": head_dim,
                          "seconds": [float(f"{one:.3e}") for one in seconds],
                          "gflops": round(count / seconds[1] * 1e-9, 1)}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    measure(12, 64, 4, 32)
    measure(8, 256, 6, 64)
