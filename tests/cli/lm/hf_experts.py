#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""OLMoE and DeepSeek-MoE of Hugging Face in and out: hf_experts.py PROGRAM

Models whose weights are formulas. hf_experts.json has their logits in fp64, computed by hf_experts_reference.py.
"""

import json
import math
import os
import struct
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hf_models import read_npy, tensors_of, write_npy  # noqa: E402
from program import Failure, attempt_all, expect_mistake, expect_success, require  # noqa: E402

COMMON = {"vocab_size": 24, "hidden_size": 16, "num_attention_heads": 4, "max_position_embeddings": 16, "rms_norm_eps": 1e-5,
          "hidden_act": "silu", "attention_bias": False, "rope_theta": 10000.0, "tie_word_embeddings": False}
CONFIGS = {
    # As transformers 5 writes it.
    "olmoe": COMMON | {"model_type": "olmoe", "architectures": ["OlmoeForCausalLM"], "intermediate_size": 8, "num_hidden_layers": 2,
                       "num_key_value_heads": 2, "num_experts": 6, "num_experts_per_tok": 2, "norm_topk_prob": False, "clip_qkv": None,
                       "output_router_logits": False, "router_aux_loss_coef": 0.01, "use_cache": True, "attention_dropout": 0.0,
                       "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "dtype": "float32", "transformers_version": "5.24.0"},
    # As on the hub: deepseek-ai/deepseek-moe-16b-base.
    "deepseek": COMMON | {"model_type": "deepseek", "architectures": ["DeepseekForCausalLM"], "intermediate_size": 20, "num_hidden_layers": 3,
                          "num_key_value_heads": 4, "moe_intermediate_size": 8, "n_routed_experts": 6, "n_shared_experts": 2,
                          "num_experts_per_tok": 3, "norm_topk_prob": False, "first_k_dense_replace": 1, "moe_layer_freq": 1,
                          "scoring_func": "softmax", "aux_loss_alpha": 0.001, "seq_aux": True, "rope_scaling": None, "pretraining_tp": 1,
                          "attention_dropout": 0.0, "use_cache": True, "torch_dtype": "float32", "transformers_version": "4.36.0",
                          "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekConfig"}},
}
CONFIGS["deepseek_scaled"] = CONFIGS["deepseek"] | {"routed_scaling_factor": 2.5}
CONFIGS["deepseek_normalized"] = CONFIGS["deepseek"] | {"norm_topk_prob": True, "n_shared_experts": None, "first_k_dense_replace": 2}
# Grids of 1, 2, 4 and 8 ranks; on the last one of 4, two ranks share each key-value head of olmoe.
GRIDS = ("1x1x1x1", "1x2x1x1", "1x1x2x1", "1x1x1x2", "2x1x1x1", "1x2x1x2", "1x1x2x2", "1x4x1x1", "2x2x2x1", "1x4x1x2")


def shapes_of(config):
    """Names and shapes of all tensors, in an order that does not matter."""
    c = config
    hidden, vocabulary = c["hidden_size"], c["vocab_size"]
    keys = c["num_key_value_heads"] * hidden // c["num_attention_heads"]
    shapes = {"model.embed_tokens.weight": (vocabulary, hidden), "model.norm.weight": (hidden,), "lm_head.weight": (vocabulary, hidden)}

    def gated(prefix, width):
        shapes.update({f"{prefix}.gate_proj.weight": (width, hidden), f"{prefix}.up_proj.weight": (width, hidden),
                       f"{prefix}.down_proj.weight": (hidden, width)})

    for layer in range(c["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{at}{name}.weight"] = (hidden,)
        for name, rows in (("q", hidden), ("k", keys), ("v", keys), ("o", hidden)):
            shapes[f"{at}self_attn.{name}_proj.weight"] = (rows, hidden)
        if c["model_type"] == "olmoe":
            shapes[f"{at}self_attn.q_norm.weight"] = (hidden,)
            shapes[f"{at}self_attn.k_norm.weight"] = (keys,)
        if layer < c.get("first_k_dense_replace", 0):
            gated(f"{at}mlp", c["intermediate_size"])
            continue
        count, width = c.get("n_routed_experts") or c["num_experts"], c.get("moe_intermediate_size") or c["intermediate_size"]
        shapes[f"{at}mlp.gate.weight"] = (count, hidden)
        for e in range(count):
            gated(f"{at}mlp.experts.{e}", width)
        if c.get("n_shared_experts"):
            gated(f"{at}mlp.shared_experts", width * c["n_shared_experts"])
    return shapes


def numbers_of(name, shape):
    """Numbers that are exact in fp32: multiples of 2^-12 around 1 for scales, and around 0."""
    seed = sum(byte * 31**k for k, byte in enumerate(name.encode())) % 65521
    count = math.prod(shape)
    steps = [((i + 1) * (seed + 7919) * 104729 + i * i * 38183) % 65521 % 4097 - 2048 for i in range(count)]
    return [1 + step / 8192 if len(shape) == 1 else step / 4096 for step in steps]


def write_model(folder, name, **changes):
    """Writes config.json, with changes, and model.safetensors."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump({key: value for key, value in (CONFIGS[name] | changes).items() if value != "absent"}, file)
    header, data = {}, b""
    for tensor, shape in sorted(shapes_of(CONFIGS[name]).items()):
        begin = len(data)
        data += struct.pack(f"<{math.prod(shape)}f", *numbers_of(tensor, shape))
        header[tensor] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    return folder


def imported(scratch, name):
    weights = os.path.join(scratch, name + ".h5")
    if not os.path.exists(weights):
        expect_success(1, ["import-weights", write_model(os.path.join(scratch, name), name), "-o", weights])
    return weights


def model_computes(ranks, name):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "hf_experts.json"), encoding="utf-8") as file:
        expected = json.load(file)[name]
    logits = [number for sequence in expected["logits"] for row in sequence for number in row]
    with tempfile.TemporaryDirectory() as scratch:
        weights, ids, out = imported(scratch, name), os.path.join(scratch, "ids.npy"), os.path.join(scratch, "out.npy")
        write_npy(ids, expected["ids"])
        for grid in GRIDS:
            if math.prod(map(int, grid.split("x"))) != ranks:
                continue
            for axis in ([], ["--expert-axis", "2"]) if grid.startswith("2") else ([],):
                for dtype, bound in (("fp64", 1e-9), ("fp32", 1e-4)):
                    done = expect_success(ranks, ["evaluate-lm", "--weights", weights, "--ids", ids, "--logits", out, "--force",
                                                  "--compute-dtype", dtype, "--grid", grid, *axis])
                    error = max(abs(a - b) for a, b in zip(read_npy(out)[1], logits, strict=True))
                    require(error <= bound, f"{name} on {grid} {axis} in {dtype}: logits are off by {error}", done)
            said = expect_success(ranks, ["complete", "--weights", weights, "--prompt-ids", ",".join(map(str, expected["ids"][0][:4])), "--print", "ids",
                                          "--max-tokens", str(len(expected["greedy"])), "--temperature", "0", "--compute-dtype", "fp64", "--grid", grid])
            require([int(word) for word in said.stdout.strip().split(",")] == expected["greedy"], f"{name} on {grid}: another continuation", said)


def export_is_the_inverse(ranks, name):
    with tempfile.TemporaryDirectory() as scratch:
        weights, back, again = imported(scratch, name), os.path.join(scratch, "back"), os.path.join(scratch, "again.h5")
        done = expect_success(ranks, ["export-weights", weights, "-o", back, "--format", "hf"])
        require(tensors_of(os.path.join(scratch, name)) == tensors_of(back), f"{name}: other tensors", done)
        with open(os.path.join(back, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        for key, value in config.items():
            if key in CONFIGS[name] and key != "rope_parameters":
                require(value == CONFIGS[name][key], f"{name}: exported with {key} {value}, not {CONFIGS[name][key]}", done)
        expect_success(1, ["import-weights", back, "-o", again])
        with open(weights, "rb") as one, open(again, "rb") as two:
            require(one.read() == two.read(), f"{name}: imported again, it is another file", done)


def options_of(config):
    """The model as options of train-lm."""
    c = config
    words = ["--arch", "llama", "--layers", c["num_hidden_layers"], "--hidden", c["hidden_size"], "--heads", c["num_attention_heads"],
             "--kv-heads", c["num_key_value_heads"], "--feed-forward", c["intermediate_size"], "--positions", c["max_position_embeddings"],
             "--experts", c.get("n_routed_experts") or c["num_experts"], "--top-k", c["num_experts_per_tok"], "--top-k-weights", "softmax",
             "--dense-layers", c.get("first_k_dense_replace", 0), "--expert-width", c.get("moe_intermediate_size", 0),
             "--shared-experts", c.get("n_shared_experts", 0), "--top-k-scale", c.get("routed_scaling_factor", 1)]
    return [str(word) for word in words] + (["--qk-norm", "--qk-norm-over", "all"] if c["model_type"] == "olmoe" else [])


def model_trains(ranks, name):
    """From imported weights: losses of one rank on every grid, and after resumes on others."""
    with tempfile.TemporaryDirectory() as scratch:
        weights, text, tokens, folder = (os.path.join(scratch, file) for file in ("w.h5", "t.txt", "t.h5", "checkpoints"))
        os.rename(imported(scratch, name), weights)
        with open(text, "w", encoding="utf-8") as file:
            file.write("".join("abcdefghijklmnopqrstuvwx"[(i * i + i // 7) % 24] for i in range(3000)))
        expect_success(1, ["tokenize", "--input", text, "--tokenizer", "char", "-o", tokens])
        train = ["train-lm", "--tokens", tokens, *options_of(CONFIGS[name]), "--sequence", "8", "--global-batch", "8", "--eval-every", "0",
                 "--warmup-steps", "0", "--lr", "0.003", "--min-lr", "0", "--compute-dtype", "fp64", "--balance-loss", "0.01"]

        def losses(count, steps, *more):
            metrics = os.path.join(scratch, "metrics.jsonl")
            if os.path.exists(metrics) and "--resume" not in more:
                os.remove(metrics)
            start = [] if "--resume" in more else ["--init-from", weights]
            expect_success(count, [*train, "--steps", str(steps), "--metrics", metrics, *start, *more])
            with open(metrics, encoding="utf-8") as file:
                return [line["loss"] for line in map(json.loads, file) if line["event"] == "step"]

        whole = losses(1, 4)
        if not whole[-1] < whole[0] - 0.1:
            raise Failure(f"{name} does not learn: {whole}")
        for grid in ("1x4x1x1", "1x1x2x2", "2x2x1x1"):
            found = losses(ranks, 4, "--grid", grid)
            if max(abs(a - b) for a, b in zip(found, whole, strict=True)) > 1e-9:
                raise Failure(f"{name} on {grid}: {found}, not {whole}")
        losses(ranks, 4, "--grid", "1x4x1x1", "--checkpoint", folder, "--checkpoint-every", "2")
        for file in ("checkpoint-000004.h5", "latest"):
            os.remove(os.path.join(folder, file))
        for count, grid in ((1, "1x1x1x1"), (ranks, "1x1x2x2")):
            found = losses(count, 4, "--grid", grid, "--checkpoint", folder, "--checkpoint-every", "100", "--resume", os.path.join(folder, "checkpoint-000002.h5"))
            if max(abs(a - b) for a, b in zip(found[-2:], whole[-2:], strict=True)) > 1e-9:
                raise Failure(f"{name} resumed on {grid}: {found}, not {whole}")


def mistakes(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        for name, changes, message in (
                ("olmoe", {"clip_qkv": 8.0}, r"clip_qkv is 8.0; only null is supported"),
                ("olmoe", {"head_dim": 8}, r"head_dim is 8, where 4 is needed"),
                ("olmoe", {"num_experts": 0}, r"num_experts is 0, where a number from 1 to"),
                ("olmoe", {"norm_topk_prob": True, "num_experts_per_tok": 1}, r"num_experts_per_tok is 1 and the weights are normalized"),
                ("olmoe", {"rms_norm_eps": "absent"}, r"rms_norm_eps is missing"),
                ("olmoe", {"num_key_value_heads": 4}, r"k_proj.weight has the shape \[8, 16\], but config.json needs \[16, 16\]"),
                ("deepseek", {"model_type": "deepseek_v2"}, r"model_type 'deepseek_v2' has multi-head latent attention \(MLA\)"),
                ("deepseek", {"model_type": "deepseek_v3"}, r"model_type 'deepseek_v3' has multi-head latent attention \(MLA\)"),
                ("deepseek", {"kv_lora_rank": 512}, r"the field kv_lora_rank \(512\) is not known"),
                ("deepseek", {"n_routed_experts": None}, r"n_routed_experts is null, where a number"),
                ("deepseek", {"first_k_dense_replace": 3}, r"first_k_dense_replace is 3, where a number from 1 to 2 is needed"),
                ("deepseek", {"first_k_dense_replace": 2}, r"there is no tensor model.layers.1.mlp.gate_proj.weight"),
                ("deepseek", {"moe_layer_freq": 2}, r"moe_layer_freq is 2; only 1 is supported"),
                ("deepseek", {"scoring_func": "sigmoid"}, r'scoring_func is "sigmoid"; only "softmax" is supported'),
                ("deepseek", {"n_shared_experts": 1}, r"shared_experts.gate_proj.weight has the shape \[16, 16\], but config.json needs \[8, 16\]"),
                ("deepseek", {"routed_scaling_factor": 2.0, "norm_topk_prob": True}, r"routed_scaling_factor 2 beside norm_topk_prob"),
                ("deepseek", {"routed_scaling_factor": -1.0}, r"--top-k-scale -1; give a number above 0"),
                ("deepseek", {"num_experts_per_tok": 7}, r"--top-k 7"),
        ):
            folder = write_model(os.path.join(scratch, "model"), name, **changes)
            expect_mistake(ranks, ["import-weights", folder, "-o", os.path.join(scratch, "w.h5")], message)


def main():
    ranks = [int(word) for word in sys.argv[2:]] or [1, 2]
    jobs = [(n, (model_computes, name)) for n in ranks for name in CONFIGS]
    if 4 in ranks:
        jobs += [(4, (model_trains, "olmoe"))]
    if 1 in ranks:
        jobs += [(1, (export_is_the_inverse, name)) for name in CONFIGS] + [(n, (mistakes,)) for n in (1, 3)]
    raise SystemExit(attempt_all(jobs))


if __name__ == "__main__":
    main()
