#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Logits and greedy continuations of the models of hf_experts.py, in fp64: hf_experts_reference.py writes hf_experts.json.

OLMoE is computed by transformers, whose norms, softmax of the router and rotary positions are in fp32 also in an fp64 model; the names of
types in its program are replaced before it runs. DeepSeek-MoE's program lies on the hub; its equations are written down here (modeling_deepseek.py
of deepseek-ai/deepseek-moe-16b-base), except for routed_scaling_factor, which is that of deepseek-ai/DeepSeek-V2's.
"""

import importlib.util
import json
import os
import pathlib
import sys
import tempfile

import torch
import transformers

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.argv[1:] = ["orthant"]  # the tests need a program; none is run here
os.environ.setdefault("ORTHANT_MPIRUN", "mpirun")
from hf_experts import CONFIGS, numbers_of, shapes_of, write_model  # noqa: E402

torch.set_default_dtype(torch.float64)
IDS = [[(s * 11 + t * 7 + t * t * 3) % 24 for t in range(8)] for s in range(2)]
NUM_GREEDY = 6


def olmoe(scratch):
    """The model of transformers, all in fp64."""
    from transformers.models.olmoe import modeling_olmoe

    text = pathlib.Path(modeling_olmoe.__file__).read_text()
    for old, new in (("torch.float32", "torch.float64"), ("dtype=torch.float,", "dtype=torch.float64,"), ("dtype=torch.float)", "dtype=torch.float64)"),
                     (".float()", ".double()")):
        text = text.replace(old, new)
    path = pathlib.Path(scratch) / "olmoe_in_fp64.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("transformers.models.olmoe.olmoe_in_fp64", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    folder = write_model(os.path.join(scratch, "olmoe"), "olmoe")
    model = module.OlmoeForCausalLM.from_pretrained(folder, dtype=torch.float64, experts_implementation="eager", attn_implementation="eager")
    return lambda ids: model(ids).logits


def deepseek(c):
    p = {name: torch.tensor(numbers_of(name, shape)).reshape(shape) for name, shape in shapes_of(c).items()}
    heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
    d = c["hidden_size"] // heads

    def norm(name, x):
        return p[name + ".weight"] * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c["rms_norm_eps"]))

    def mlp(name, x):
        return (torch.nn.functional.silu(x @ p[name + ".gate_proj.weight"].T) * (x @ p[name + ".up_proj.weight"].T)) @ p[name + ".down_proj.weight"].T

    def attention(at, x):
        batch, length, _ = x.shape
        q, k, v = ((x @ p[f"{at}self_attn.{n}_proj.weight"].T).view(batch, length, h, d).transpose(1, 2)
                   for n, h in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
        angles = torch.arange(length)[:, None] * c["rope_theta"] ** (-torch.arange(0, d, 2) / d)
        cos, sin = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()
        q, k = (x * cos + torch.cat([-x[..., d // 2:], x[..., : d // 2]], -1) * sin for x in (q, k))
        k, v = (x.repeat_interleave(heads // kv_heads, 1) for x in (k, v))
        scores = q @ k.transpose(2, 3) / d**0.5 + torch.full((length, length), -torch.inf).triu(1)
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, -1) @ p[f"{at}self_attn.o_proj.weight"].T

    def mixture(at, x):
        weights, chosen = (x @ p[f"{at}mlp.gate.weight"].T).softmax(-1).topk(c["num_experts_per_tok"], sorted=False)
        if c["num_experts_per_tok"] > 1 and c["norm_topk_prob"]:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        else:
            weights = weights * c.get("routed_scaling_factor", 1.0)
        y = torch.zeros_like(x)
        for e in range(c["n_routed_experts"]):
            y = y + (weights * (chosen == e)).sum(-1, keepdim=True) * mlp(f"{at}mlp.experts.{e}", x)
        return y + mlp(f"{at}mlp.shared_experts", x) if c["n_shared_experts"] else y

    def logits(ids):
        x = p["model.embed_tokens.weight"][ids]
        for layer in range(c["num_hidden_layers"]):
            at = f"model.layers.{layer}."
            x = x + attention(at, norm(at + "input_layernorm", x))
            h = norm(at + "post_attention_layernorm", x)
            x = x + (mlp(at + "mlp", h) if layer < c["first_k_dense_replace"] else mixture(at, h))
        return norm("model.norm", x) @ p["lm_head.weight"].T

    return logits


def main():
    figures = {"made_with": f"transformers {transformers.__version__}, torch {torch.__version__}"}
    with tempfile.TemporaryDirectory() as scratch, torch.no_grad():
        for name, config in CONFIGS.items():
            model = olmoe(scratch) if name == "olmoe" else deepseek(config)
            greedy = IDS[0][:4]
            while len(greedy) < 4 + NUM_GREEDY:
                greedy.append(int(model(torch.tensor([greedy]))[0, -1].argmax()))
            logits = model(torch.tensor(IDS))
            figures[name] = {"ids": IDS, "greedy": greedy[4:], "logits": [[[round(x, 12) for x in row] for row in sequence] for sequence in logits.tolist()]}
    (HERE / "hf_experts.json").write_text(json.dumps(figures) + "\n")


main()
