# SPDX-License-Identifier: Apache-2.0
"""python3 reference.py [--check]: losses, gradients and trainings of small transformers by PyTorch, in fp64.

Writes reference.json beside this file; --check compares with what is there instead. Nothing of Orthant is run or
imported. The models are written down on whole matrices from their definitions; gradients are PyTorch's.

Parameters start as in tests/models/formula_parameters.hpp. Weights are [in x out]. Columns of queries, keys and values
are grouped: per key-value head its query heads, its key, its value. Columns of SwiGLU are pairs (gate, up). Dropout
masks are those of tests/models/oracle/keyed.py, keyed by the number of the token: streams 0 of the embedding, 3 l + 1
of the probabilities, 3 l + 2 of attention, 3 l + 3 of the feed-forward part of layer l.

A gradient is told by its norm and by its sums with three arrays of pseudo-random numbers (probe).
"""

import fnmatch
import json
import pathlib
import sys

import numpy as np
import torch

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "oracle"))
import keyed  # noqa: E402

torch.set_default_dtype(torch.float64)
NUM_PROBES = 3

GPT = dict(layers=2, hidden=16, heads=4, kv_heads=4, feed_forward=32, vocabulary=24, max_sequence=6, sequence=6,
           sequences=8, rotary=False, rms=False, swiglu=False, bias=True, tied=True, dropout=0.0)
CASES = {
    "gpt": {},
    "grouped": dict(kv_heads=2),
    "multi_query": dict(kv_heads=1, bias=False),
    "llama": dict(kv_heads=2, rotary=True, rms=True, swiglu=True, bias=False, tied=False),
    "rotary_biased": dict(rotary=True, swiglu=True),
    "rms_untied": dict(rms=True, tied=False),
    "dropout": dict(dropout=0.2),
    "llama_dropout": dict(kv_heads=2, rotary=True, rms=True, swiglu=True, bias=False, tied=False, dropout=0.3),
    "tanh": dict(tanh=True),
    # Heads of 6 numbers beside a width of 16 by 4 heads, as Qwen3 and Llama 3 have them.
    "head_norms": dict(kv_heads=2, rotary=True, rms=True, swiglu=True, bias=False, head_width=6, qk_norm=True),
    "scaled_rotary": dict(kv_heads=1, rotary=True, rms=True, swiglu=True, bias=False, head_width=6, scaling=[8.0, 0.05, 0.6, 4]),
    # All queries of a token are one row, and all its keys; ranks of a wide x share a head. Three layers, of which the first has no experts.
    "joint_norms": dict(kv_heads=2, rotary=True, rms=True, swiglu=True, bias=False, head_width=6, qk_norm="all"),
    "olmoe": dict(kv_heads=2, rotary=True, rms=True, swiglu=True, bias=False, tied=False, qk_norm="all",
                  experts=dict(count=6, top_k=2)),
    "deepseek": dict(layers=3, rotary=True, rms=True, swiglu=True, bias=False, tied=False,
                     experts=dict(count=6, top_k=3, dense=1, width=12, shared=2, scale=1.5)),
    "uneven": dict(layers=1, hidden=20, feed_forward=27, vocabulary=23, max_sequence=7, sequence=5, sequences=9),
}
SEED, STEP = 11, 5  # of dropout


def formula(i, j, p):
    k = (31 * i * i + 6007 * i * j + 7919 * i + 38183 * j + 104729 * p + 12345) % 100003
    return 2.0 * k / 100003.0 - 1.0


def indices(shape):
    if len(shape) == 1:
        return np.zeros(shape, np.int64), np.arange(shape[0])
    return np.arange(shape[0])[:, None], np.arange(shape[1])[None, :]


def start(name, shape, p):
    u = formula(*indices(shape), p)
    if len(shape) == 1:
        return 1 + u / 4 if name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight", "q_norm.weight", "k_norm.weight")) else u / 8
    return np.sqrt(6.0 / sum(shape)) * u


def head_width(c):
    return c.get("head_width") or c["hidden"] // c["heads"]


def has_experts(c, layer):
    return "experts" in c and layer >= c["experts"].get("dense", 0)


def shapes(c):
    """Names and shapes in the order of the model's list."""
    h, f, v = c["hidden"], c["feed_forward"], c["vocabulary"]
    d = head_width(c)
    qkv = (c["heads"] + 2 * c["kv_heads"]) * d
    inner = 2 if c["swiglu"] else 1
    all_shapes = [("wte.weight", (v, h))]
    if not c["rotary"]:
        all_shapes.append(("wpe.weight", (c["max_sequence"], h)))

    def norm(name):
        all_shapes.append((name + ".weight", (h,)))
        if c["bias"] and not c["rms"]:
            all_shapes.append((name + ".bias", (h,)))

    def linear(name, rows, columns):
        all_shapes.append((name + ".weight", (rows, columns)))
        if c["bias"]:
            all_shapes.append((name + ".bias", (columns,)))

    for layer in range(c["layers"]):
        norm(f"h.{layer}.ln_1")
        linear(f"h.{layer}.attn.c_attn", h, qkv)
        if c.get("qk_norm"):
            all_shapes.extend((f"h.{layer}.attn.{name}.weight", (d * heads if c["qk_norm"] == "all" else d,))
                              for name, heads in (("q_norm", c["heads"]), ("k_norm", c["kv_heads"])))
        linear(f"h.{layer}.attn.c_proj", c["heads"] * d, h)
        norm(f"h.{layer}.ln_2")
        if has_experts(c, layer):
            experts = c["experts"]
            width, shared = experts.get("width", f), experts.get("shared", 0)
            all_shapes.append((f"h.{layer}.mlp.router.weight", (h, experts["count"])))
            all_shapes.extend((f"h.{layer}.mlp.experts.{e}.c_fc.weight", (h, inner * width)) for e in range(experts["count"]))
            all_shapes.extend((f"h.{layer}.mlp.experts.{e}.c_proj.weight", (width, h)) for e in range(experts["count"]))
            if shared:
                all_shapes.append((f"h.{layer}.mlp.shared.c_fc.weight", (h, inner * width * shared)))
                all_shapes.append((f"h.{layer}.mlp.shared.c_proj.weight", (width * shared, h)))
            continue
        linear(f"h.{layer}.mlp.c_fc", h, f * inner)
        linear(f"h.{layer}.mlp.c_proj", f, h)
    norm("ln_f")
    if not c["tied"]:
        all_shapes.append(("lm_head.weight", (v, h)))
    return all_shapes


def tokens(c, batch):
    s, t = np.arange(c["sequences"])[:, None], np.arange(c["sequence"])[None, :]
    return ((s * 31 + t * 7 + s * t * 3 + 1000 * batch) * 7919 + 104729 * t * t) % 100003 % c["vocabulary"]


def targets(c, batch):
    s, t = np.arange(c["sequences"])[:, None], np.arange(c["sequence"])[None, :]
    k = ((s * 17 + t * 29 + s * t * 5 + 1000 * batch + 77) * 6007 + 38183 * s * s) % 100003
    return np.where(k % 10 == 3, -1, k % c["vocabulary"])


class Masks:
    def __init__(self, c, step):
        self.c, self.step = c, step
        self.ids = np.arange(c["sequences"] * c["sequence"])

    def rows(self, stream, width):
        if self.c["dropout"] == 0:
            return 1.0
        mask = keyed.dropout_mask(SEED, self.step, stream, self.ids, width, self.c["dropout"])
        return torch.tensor(mask).reshape(self.c["sequences"], self.c["sequence"], width)

    def probabilities(self, stream):
        """[sequences x heads x queries x keys]"""
        c = self.c
        if c["dropout"] == 0:
            return 1.0
        ids = (self.ids[:, None] * c["heads"] + np.arange(c["heads"])[None, :]).reshape(-1)
        mask = keyed.dropout_mask(SEED, self.step, stream, ids, c["sequence"], c["dropout"])
        return torch.tensor(mask).reshape(c["sequences"], c["sequence"], c["heads"], c["sequence"]).transpose(1, 2)


def normed(c, p, name, x):
    if c["rms"]:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * p[name + ".weight"]
    return torch.nn.functional.layer_norm(x, (c["hidden"],), p[name + ".weight"], p.get(name + ".bias"), 1e-5)


def linear(p, name, x):
    y = x @ p[name + ".weight"]
    return y + p[name + ".bias"] if name + ".bias" in p else y


def turned(c, x):
    """x [sequences x heads x places x d]: numbers j and j + d/2 are a pair."""
    d = x.shape[-1]
    frequencies = 10000.0 ** (-2.0 * torch.arange(d // 2) / d)
    if "scaling" in c:  # Llama 3: slower where fewer than `high` turns fit into the positions
        factor, low, high, positions = c["scaling"]
        share = ((positions * frequencies / (2 * np.pi) - low) / (high - low)).clamp(0, 1)
        frequencies = (1 - share) * frequencies / factor + share * frequencies
    angles = torch.arange(c["sequence"])[:, None] * frequencies[None, :]
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def joined(x, scale, copies):
    """x [sequences x heads x places x d], each head `copies` times: RMSNorm of a place's heads together."""
    x = x[:, ::copies]
    rows = x.transpose(1, 2)
    rows = rows * torch.rsqrt((rows * rows).mean((2, 3), keepdim=True) + 1e-5) * scale.reshape(rows.shape[2:])
    return rows.transpose(1, 2).repeat_interleave(copies, 1)


def attention(c, p, layer, x, masks):
    b, s, h, g = c["sequences"], c["sequence"], c["heads"], c["kv_heads"]
    d, r = head_width(c), h // g
    columns = linear(p, f"h.{layer}.attn.c_attn", x).reshape(b, s, g, r + 2, d)
    q = columns[..., :r, :].reshape(b, s, h, d).transpose(1, 2)
    k = columns[..., r, :].repeat_interleave(r, 2).transpose(1, 2)
    v = columns[..., r + 1, :].repeat_interleave(r, 2).transpose(1, 2)
    if c.get("qk_norm") == "all":
        q, k = (joined(x, p[f"h.{layer}.attn.{name}_norm.weight"], r) for name, x, r in (("q", q, 1), ("k", k, r)))
    elif c.get("qk_norm"):
        q, k = (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * p[f"h.{layer}.attn.{name}_norm.weight"]
                for name, x in (("q", q), ("k", k)))
    if c["rotary"]:
        q, k = turned(c, q), turned(c, k)
    scores = q @ k.transpose(2, 3) / np.sqrt(d)
    scores = scores.masked_fill(torch.ones(s, s, dtype=torch.bool).triu(1), -torch.inf)
    out = (scores.softmax(-1) * masks.probabilities(3 * layer + 1)) @ v
    return linear(p, f"h.{layer}.attn.c_proj", out.transpose(1, 2).reshape(b, s, h * d))


def experts(c, p, layer, x):
    settings, prefix = c["experts"], f"h.{layer}.mlp."
    weights, chosen = (x @ p[prefix + "router.weight"]).softmax(-1).topk(settings["top_k"])
    out = feed_forward(c, p, prefix + "shared", x) if settings.get("shared") else torch.zeros_like(x)
    for e in range(settings["count"]):
        weight = (weights * (chosen == e)).sum(-1, keepdim=True)
        out = out + settings.get("scale", 1.0) * weight * feed_forward(c, p, prefix + f"experts.{e}", x)
    return out


def feed_forward(c, p, prefix, x):
    u = linear(p, prefix + ".c_fc", x)
    if c["swiglu"]:
        pairs = u.reshape(*u.shape[:-1], -1, 2)
        u = torch.nn.functional.silu(pairs[..., 0]) * pairs[..., 1]
    else:
        u = torch.nn.functional.gelu(u, approximate="tanh" if c.get("tanh") else "none")
    return linear(p, prefix + ".c_proj", u)


def sum_of_losses(c, p, batch, step):
    """The sum over the tokens that are kept, and their number."""
    masks, width = Masks(c, step), c["hidden"]
    x = p["wte.weight"][torch.tensor(tokens(c, batch))]
    if not c["rotary"]:
        x = x + p["wpe.weight"][: c["sequence"]]
    x = x * masks.rows(0, width)
    for layer in range(c["layers"]):
        x = x + attention(c, p, layer, normed(c, p, f"h.{layer}.ln_1", x), masks) * masks.rows(3 * layer + 2, width)
        branch = normed(c, p, f"h.{layer}.ln_2", x)
        branch = experts(c, p, layer, branch) if has_experts(c, layer) else feed_forward(c, p, f"h.{layer}.mlp", branch)
        x = x + branch * masks.rows(3 * layer + 3, width)
    logits = normed(c, p, "ln_f", x) @ p["wte.weight" if c["tied"] else "lm_head.weight"].T
    labels = torch.tensor(targets(c, batch))
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, c["vocabulary"]), labels.reshape(-1), ignore_index=-1,
                                             reduction="sum")
    return loss, int((labels >= 0).sum())


def parameters(c):
    return {name: torch.tensor(start(name, shape, p), requires_grad=True)
            for p, (name, shape) in enumerate(shapes(c))}


def adapters(c, p, rank, alpha, targets):
    """The weights with low-rank adapters, as functions of their factors, and the factors. A factor B has no numbers in columns of other targets."""
    d, r = head_width(c), c["heads"] // c["kv_heads"]
    kinds = {"attn.c_attn": ["q"] * (r * d) + ["k"] * d + ["v"] * d, "attn.c_proj": ["o"], "mlp.c_proj": ["down"],
             "mlp.c_fc": ["gate", "up"] if c["swiglu"] else ["up"]}
    factors, masks = {}, {}
    for name, shape in shapes(c):
        stem = name.removesuffix(".weight")
        kind = kinds.get(stem.split(".", 2)[-1])
        chosen = [target for target in dict.fromkeys(kind or []) if target in targets] if name.endswith(".weight") else []
        if not chosen:
            continue
        mask = np.array([[kind[j % len(kind)] == target for j in range(shape[1])] for target in chosen for _ in range(rank)], float)
        for suffix, size in ((".lora_A", (shape[0], len(mask))), (".lora_B", (len(mask), shape[1]))):
            number = len(p) + len(factors)
            factors[stem + suffix] = torch.tensor(start(stem + suffix, size, number) * (mask if suffix == ".lora_B" else 1), requires_grad=True)
        masks[stem] = torch.tensor(mask)

    def merged():
        weights = dict(p)
        for stem, mask in masks.items():
            weights[stem + ".weight"] = p[stem + ".weight"] + alpha / rank * factors[stem + ".lora_A"] @ (factors[stem + ".lora_B"] * mask)
        return weights

    return merged, factors


def told(array):
    """The norm and the sums with the probes."""
    i, j = indices(array.shape)
    probes = [float((array * formula(i, j, 1000 + k)).sum()) for k in range(NUM_PROBES)]
    return [float(np.linalg.norm(array))] + probes


def gradients(c):
    p = parameters(c)
    loss, count = sum_of_losses(c, p, 0, STEP)
    (loss / count).backward()
    return {"settings": c, "loss": loss.item() / count, "gradients": {name: told(x.grad.numpy()) for name, x in p.items()}}


def matches(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def training(c, num_steps, accumulate, clip_norm, freeze=(), no_decay=(), lora=None):
    """Step s reads batches accumulate s + k, keyed by their numbers. AdamW decays matrices only, and none that matches no_decay."""
    p = parameters(c)
    for name, x in p.items():
        x.requires_grad_(not matches(name, freeze))
    merged = lambda: p  # noqa: E731
    if lora:
        for x in p.values():
            x.requires_grad_(False)
        merged, factors = adapters(c, p, lora["rank"], lora["alpha"], lora["targets"])
        p = p | factors
    trained = {name: x for name, x in p.items() if x.requires_grad}
    decayed = [x for name, x in trained.items() if x.ndim == 2 and not matches(name, no_decay)]
    others = [x for name, x in trained.items() if x.ndim == 1 or matches(name, no_decay)]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=0.003, betas=(0.9, 0.99), eps=1e-8)
    losses, clipped = [], 0
    for step in range(num_steps):
        optimizer.zero_grad()
        parts = [sum_of_losses(c, merged(), accumulate * step + k, accumulate * step + k) for k in range(accumulate)]
        loss = sum(part[0] for part in parts) / sum(part[1] for part in parts)
        loss.backward()
        clipped += float(torch.nn.utils.clip_grad_norm_(trained.values(), clip_norm)) > clip_norm
        optimizer.step()
        losses.append(loss.item())
    return {"settings": c, "accumulate": accumulate, "clip_norm": clip_norm, "freeze": list(freeze), "no_decay": list(no_decay),
            **({"lora": lora} if lora else {}), "losses": losses, "clipped": clipped,
            "parameters": {name: told(x.detach().numpy()) for name, x in p.items()}}


def main():
    file = HERE / "reference.json"
    figures = {name: gradients(GPT | changes) for name, changes in CASES.items()}
    figures["training"] = training(GPT, 50, 1, 1.0)
    figures["accumulated"] = training(GPT | CASES["llama_dropout"], 10, 2, 0.5)
    figures["frozen"] = training(GPT | CASES["grouped"], 10, 2, 0.5, ["wte.*", "h.0.attn.*", "*.ln_2.bias", "h.1.mlp.c_fc.weight"],
                                 ["wpe.weight", "h.*.mlp.c_proj.weight"])
    figures["lora"] = training(GPT | CASES["llama_dropout"], 10, 2, 0.5, lora=dict(rank=3, alpha=4.5, targets=["v", "q", "up", "o"]))
    figures["lora_gpt"] = training(GPT, 10, 1, 0.5, lora=dict(rank=2, alpha=8.0, targets=["k", "up", "down"]))
    text = json.dumps(figures, indent=1)
    if "--check" in sys.argv[1:]:
        old = json.loads(file.read_text())

        def compare(a, b, where):
            if isinstance(a, dict):
                assert a.keys() == b.keys(), where
                for key in a:
                    compare(a[key], b[key], f"{where}/{key}")
            elif isinstance(a, list):
                for k, (x, y) in enumerate(zip(a, b, strict=True)):
                    compare(x, y, f"{where}/{k}")
            else:
                assert a == b or abs(a - b) <= 1e-9 * max(1, abs(b)), f"{where}: {a}, recorded {b}"

        compare(figures, old, "")
        print(f"{file.name} is what PyTorch {torch.__version__} gives")
    else:
        file.write_text(text + "\n")


main()
