#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Language models of Hugging Face in and out: hf_models.py PROGRAM

Six random models that transformers wrote, with their ids, fp64 logits, loss and greedy continuation (ORTHANT_DATA/reference/hf).
"""

import ast
import json
import math
import os
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from program import attempt_all, expect_mistake, expect_success, require  # noqa: E402

HF = os.path.join(os.environ.get("ORTHANT_DATA") or os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 4, "shared"), "reference", "hf")
NAMES = ("gpt2", "llama", "llama3", "mixtral", "qwen3", "qwen3_moe")
WITH_EXPERTS = ("mixtral", "qwen3_moe")
# Grids of 1, 2, 4 and 8 ranks; the mixtures of experts also with their axis.
GRIDS = ("1x1x1x1", "1x2x1x1", "1x1x2x1", "2x1x1x1", "1x2x1x2", "1x1x2x2", "2x2x2x1")


def read_npy(path):
    with open(path, "rb") as file:
        file.seek(8)
        (length,) = struct.unpack("<H", file.read(2))
        header = ast.literal_eval(file.read(length).decode())
        count = math.prod(header["shape"])
        return header["shape"], struct.unpack(f"<{count}{'f' if header['descr'] == '<f4' else 'd'}", file.read())


def write_npy(path, rows):
    header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({len(rows)}, {len(rows[0])}), }}"
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        for row in rows:
            file.write(struct.pack(f"<{len(row)}q", *row))


def tensors_of(folder):
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    return {name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])]) for name, entry in header.items() if name != "__metadata__"}


def imported(scratch, name):
    weights = os.path.join(scratch, name + ".h5")
    if not os.path.exists(weights):
        expect_success(1, ["import-weights", os.path.join(HF, name), "-o", weights])
    return weights


def model_computes(ranks, name):
    """Logits, their loss, and the greedy continuation, on grids of this number of ranks."""
    with open(os.path.join(HF, name, "expected.json"), encoding="utf-8") as file:
        expected = json.load(file)
    ids, logits = expected["input_ids"], [number for sequence in expected["logits"] for row in sequence for number in row]
    with tempfile.TemporaryDirectory() as scratch:
        weights, tokens, out = imported(scratch, name), os.path.join(scratch, "ids.npy"), os.path.join(scratch, "out.npy")
        write_npy(tokens, ids)
        for grid in GRIDS:
            if math.prod(map(int, grid.split("x"))) != ranks:
                continue
            for axis in ([], ["--expert-axis", "2"]) if name in WITH_EXPERTS and grid.startswith("2") else ([],):
                # RMSNorm, rotary positions and softmax of transformers are in fp32 also in an fp64 model: 1.7e-7 in all, by the equations in
                # NumPy, whose results those here repeat to 1e-14.
                for dtype, bound in (("fp64", 1e-9 if name == "gpt2" else 5e-7), ("fp32", 1e-4)):
                    done = expect_success(ranks, ["evaluate-lm", "--weights", weights, "--ids", tokens, "--logits", out, "--force",
                                                  "--compute-dtype", dtype, "--grid", grid, *axis])
                    shape, found = read_npy(out)
                    require(list(shape) == [len(ids), len(ids[0]), len(expected["logits"][0][0])], f"{name}: shape {shape}", done)
                    error = max(abs(a - b) for a, b in zip(found, logits))
                    require(error <= bound, f"{name} on {grid} {axis} in {dtype}: logits are off by {error}", done)
                    if dtype == "fp64":
                        expect_success(1, ["evaluate-lm", "--weights", weights, "--ids", tokens, "--logits", out, "--force", "--compute-dtype", dtype])
                        apart = max(abs(a - b) for a, b in zip(found, read_npy(out)[1]))
                        require(apart <= 1e-12, f"{name} on {grid}: {apart} from one rank", done)
            continuation = expected["greedy_continuation_of_first_4"]
            done = expect_success(ranks, ["complete", "--weights", weights, "--prompt-ids", ",".join(map(str, ids[0][:4])), "--print", "ids",
                                          "--max-tokens", str(len(continuation) - 4 if continuation[:4] == ids[0][:4] else len(continuation)),
                                          "--temperature", "0", "--compute-dtype", "fp64", "--grid", grid])
            said = [int(word) for word in done.stdout.strip().split(",")]
            require(said == continuation[-len(said):], f"{name} on {grid}: continues with {said}, not {continuation}", done)


def export_is_the_inverse(ranks, name):
    with tempfile.TemporaryDirectory() as scratch:
        weights, back = imported(scratch, name), os.path.join(scratch, "back")
        done = expect_success(ranks, ["export-weights", weights, "-o", back, "--format", "hf"])
        theirs, ours = tensors_of(os.path.join(HF, name)), tensors_of(back)
        require(theirs == ours, f"{name}: other tensors: {sorted(set(theirs) ^ set(ours))}", done)
        again = os.path.join(scratch, "again.h5")
        expect_success(1, ["import-weights", back, "-o", again])
        one, two = (expect_success(1, ["info", path]).stdout for path in (weights, again))
        require(one.replace(weights, "") == two.replace(again, ""), f"{name}: imported again, it is another model", done)


def damaged(scratch, name, change):
    """A copy of a model whose config has been changed."""
    folder = os.path.join(scratch, "damaged")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(HF, name, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    change(config)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    link = os.path.join(folder, "model.safetensors")
    if os.path.lexists(link):
        os.remove(link)
    os.symlink(os.path.join(HF, name, "model.safetensors"), link)
    return folder


def mistakes(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        for name, change, message in (
                ("llama", lambda c: c.update(hidden_act="gelu"), r"config.json: hidden_act gelu: silu is computed here"),
                ("llama", lambda c: c.update(attention_bias=True), r"attention_bias is true; only false is supported"),
                ("llama", lambda c: c.update(model_type="phi3"), r"model_type 'phi3' is none of gpt2, llama"),
                ("llama", lambda c: c.update(logit_scale=2.0), r"the field logit_scale \(2.0\) is not known, and it may change the result"),
                ("llama", lambda c: c.update(hidden_size=0), r"hidden_size is 0, where a number from 1 to"),
                ("llama", lambda c: c.update(hidden_size="32"), r'hidden_size is "32", where a number'),
                ("llama", lambda c: c.update(num_hidden_layers=3), r"there is no tensor model.layers.2"),
                ("llama", lambda c: c.update(num_hidden_layers=1), r"the tensor model.layers.1.* belongs to no part"),
                ("llama", lambda c: c.update(intermediate_size=64), r"has the shape \[48, 32\], but config.json needs \[64, 32\]"),
                ("llama", lambda c: c["rope_parameters"].update(rope_type="yarn"), r'rope_type "yarn" are not computed here'),
                ("llama3", lambda c: c["rope_parameters"].pop("factor"), r"the rotary positions have no number factor"),
                ("qwen3_moe", lambda c: c.update(mlp_only_layers=[0]), r"mlp_only_layers is \[0\]"),
                ("mixtral", lambda c: c.update(num_experts_per_tok=5), r"--top-k 5"),
                ("mixtral", lambda c: c.pop("num_experts_per_tok"), r"num_experts_per_tok is null, where a number"),
                ("mixtral", lambda c: c.pop("rms_norm_eps"), r"rms_norm_eps is missing"),
                ("llama", lambda c: c.update(model_type="mistral"), r"sliding_window is missing"),
                ("llama", lambda c: c.update(num_hidden_layers=10**9), r"num_hidden_layers is 1000000000, where a number from 1 to 10000"),
                ("llama3", lambda c: c["rope_parameters"].update(original_max_position_embeddings=1e300), r"original_max_position_embeddings is 1e\+300"),
                ("gpt2", lambda c: c.update(activation_function="relu"), r"activation_function relu"),
                ("gpt2", lambda c: c.update(scale_attn_by_inverse_layer_idx=True), r"scale_attn_by_inverse_layer_idx is true"),
        ):
            expect_mistake(ranks, ["import-weights", damaged(scratch, name, change), "-o", os.path.join(scratch, "w.h5")], message)
        empty = os.path.join(scratch, "empty")
        os.makedirs(empty)
        expect_mistake(ranks, ["import-weights", empty, "-o", os.path.join(scratch, "w.h5")], r"config.json: it cannot be opened")
        weights = imported(scratch, "gpt2")
        for words, message in (
                (["complete", "--weights", weights], r"give --prompt TEXT, --prompt-file F, --prompt-ids"),
                (["complete", "--weights", weights, "--prompt-ids", "5,"], r"numbers of tokens are needed"),
                (["complete", "--weights", weights, "--prompt-ids", "5,x"], r"--prompt-ids '5,x': numbers of tokens"),
                (["complete", "--weights", weights, "--prompt-ids", "5,96"], r"token 96 is not in the vocabulary, which has the tokens 0 to 95"),
                (["complete", "--weights", weights, "--prompt-ids", "5", "--max-tokens", "32"], r"a prompt of 1 tokens and 32 new ones are more than the 32 positions"),
                (["evaluate-lm", "--weights", weights, "--ids", "x.npy"], r"--ids and --logits go together"),
                (["evaluate-lm", "--weights", weights, "--ids", weights, "--logits", "y.npy", "--sequence", "8"], r"--sequence is for a token file"),
                (["evaluate", "--dataset", "karate", "--weights", weights], r"holds weights of a language model, not of a graph network"),
                (["export-weights", weights, "-o", "w.safetensors"], r"holds weights of a language model"),
        ):
            expect_mistake(ranks, words, message)


def require_models():
    """Skips the test without the models."""
    if not os.path.isdir(HF):
        print(f"skipped: there are no models of Hugging Face in {HF}; ORTHANT_DATA names the folder of the data")
        raise SystemExit(77)


def main():
    require_models()
    ranks = [int(word) for word in sys.argv[2:]] or [1, 2]
    jobs = [(n, (model_computes, name)) for n in ranks for name in NAMES]
    if 1 in ranks:
        jobs += [(1, (export_is_the_inverse, name)) for name in NAMES] + [(n, (mistakes,)) for n in (1, 3)]
    raise SystemExit(attempt_all(jobs))


if __name__ == "__main__":
    main()
