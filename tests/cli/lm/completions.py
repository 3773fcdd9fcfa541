#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Completions of texts: completions.py PROGRAM [RANKS ..]

The models of ORTHANT_DATA/reference/hf with a tokenizer whose token i is the character of code 32 + i. The greedy continuation is that of
transformers.
"""

import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hf_models import HF  # noqa: E402
from program import attempt_all, expect_mistake, expect_success, require  # noqa: E402

END = 95  # <|endoftext|>


def text_of(ids):
    return "".join(chr(32 + i) for i in ids)


def tokenizer_json(extra=0):
    """Every printable character of ASCII; `extra` more tokens than the models have."""
    characters = ["\u0120"] + [chr(code) for code in range(33, 127)]
    vocabulary = {character: i for i, character in enumerate(characters)}
    vocabulary.update({f"{a}{a}": END + 1 + i for i, a in enumerate(characters[1:1 + extra])})
    return {"version": "1.0", "added_tokens": [{"id": END, "content": "<|endoftext|>", "special": True, "normalized": False,
                                                "lstrip": False, "rstrip": False, "single_word": False}],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}


def imported(scratch, name, extra=0):
    """Weights of a model whose folder has the tokenizer."""
    folder, weights = os.path.join(scratch, name), os.path.join(scratch, name + ".h5")
    os.makedirs(folder)
    for file in ("config.json", "model.safetensors"):
        os.symlink(os.path.join(HF, name, file), os.path.join(folder, file))
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump(tokenizer_json(extra), file)
    expect_success(1, ["import-weights", folder, "-o", weights])
    return weights


def expected_of(name):
    with open(os.path.join(HF, name, "expected.json"), encoding="utf-8") as file:
        expected = json.load(file)
    prompt, continuation = expected["input_ids"][0][:4], expected["greedy_continuation_of_first_4"]
    return prompt, continuation[4:] if continuation[:4] == prompt else continuation


def greedy_text(ranks, name):
    """The text of transformers' continuation, whole and up to stop texts."""
    prompt, continuation = expected_of(name)
    require(END not in continuation, f"{name}: the continuation ends", None)
    said = text_of(continuation)
    with tempfile.TemporaryDirectory() as scratch:
        weights = imported(scratch, name)
        words = ["complete", "--weights", weights, "--temperature", "0", "--compute-dtype", "fp64", "--max-tokens", str(len(continuation))]
        done = expect_success(ranks, [*words, f"--prompt={text_of(prompt)}"])
        require(done.stdout == said + "\n", f"{name}: says {done.stdout!r}, not {said!r}", done)
        prompt_file = os.path.join(scratch, "prompt.txt")
        with open(prompt_file, "w", encoding="utf-8") as file:
            file.write(text_of(prompt))
        for stop in (said[2:4], said[3]):
            done = expect_success(ranks, [*words, "--prompt-file", prompt_file, "--stop=none of it", f"--stop={stop}"])
            require(done.stdout == said[:said.index(stop)] + "\n", f"{name}: says {done.stdout!r} before {stop!r}", done)
        done = expect_success(ranks, [*words, "--prompt-file", prompt_file, "--print", "ids"])
        require(done.stdout == ",".join(map(str, continuation)) + "\n", f"{name}: ids {done.stdout}", done)
        done = expect_success(ranks, [*words, "--prompt-ids", ",".join(map(str, prompt)), "--print", "text"])
        require(done.stdout == said + "\n", f"{name}: says {done.stdout!r} to ids", done)


def tokenizer_travels(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        weights, back = imported(scratch, "llama"), os.path.join(scratch, "back")
        expect_success(ranks, ["export-weights", weights, "-o", back, "--format", "hf"])
        with open(os.path.join(back, "tokenizer.json"), encoding="utf-8") as file:
            require(json.load(file) == tokenizer_json(), "exports another tokenizer", None)


def char_model(ranks):
    """Weights of train-lm, with the token file of the training."""
    with tempfile.TemporaryDirectory() as scratch:
        text, tokens, weights = (os.path.join(scratch, name) for name in ("t.txt", "t.h5", "w.h5"))
        with open(text, "w", encoding="utf-8") as file:
            file.write("der Bär träumt, der Hase nicht. " * 40)
        expect_success(1, ["tokenize", "--input", text, "-o", tokens])
        expect_success(1, ["train-lm", "--tokens", tokens, "--layers", "1", "--hidden", "16", "--heads", "2", "--sequence", "32", "--steps", "150",
                           "--global-batch", "8", "--lr", "0.02", "--eval-every", "0", "--save-weights", weights])
        words = ["complete", "--weights", weights, "--tokenizer", tokens, "--temperature", "0", "--max-tokens", "24"]
        done = expect_success(ranks, [*words, "--prompt", "der Bär"])
        require(done.stdout.startswith(" träumt"), f"says {done.stdout!r}", done)
        expect_mistake(ranks, [*words, "--prompt", "Öl"], r"the text has 'Ö', which is no token of '.*t\.h5'")
        expect_mistake(ranks, ["complete", "--weights", weights, "--prompt", "der"], r"holds no tokenizer: give --tokenizer FILE")
        expect_mistake(ranks, ["complete", "--weights", weights, "--prompt", "der", "--tokenizer", "byte"], r"has 256 tokens, and the model of .* only \d+")
        with open(text, "w", encoding="utf-8") as file:
            file.write("abc")
        other = os.path.join(scratch, "other.h5")
        expect_success(1, ["tokenize", "--input", text, "-o", other, "--train-fraction", "1"])
        expect_mistake(ranks, ["complete", "--weights", weights, "--prompt", "a", "--tokenizer", other], r"was trained on another vocabulary than that of '.*other\.h5'")


def mistakes(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        weights, large = imported(scratch, "gpt2"), imported(scratch, "qwen3", extra=3)
        words, empty = ["complete", "--weights", weights], os.path.join(scratch, "empty.txt")
        with open(empty, "w", encoding="utf-8"):
            pass
        for more, message in (
                ([], r"give --prompt TEXT, --prompt-file F or --prompt-ids 5,17,3"),
                (["--prompt", ""], r"--prompt is empty: a completion needs a token"),
                (["--prompt-file", empty], r"empty\.txt is empty"),
                (["--prompt-file", "none.txt"], r"none\.txt"),
                (["--prompt", "a", "--prompt-ids", "5"], r"--prompt and --prompt-ids exclude each other"),
                (["--prompt", "a" * 40], r"a prompt of 40 tokens and 16 new ones are more than the 32 positions of"),
                (["--prompt", "a", "--stop="], r"--stop: 1 required TEXT missing"),
                (["--prompt-ids", "5", "--stop", "a"], r"--stop compares texts: give --tokenizer"),
                (["--prompt", "a", "--tokenizer", "none.json"], r"there is no 'none\.json'"),
                (["--prompt", "a", "--tokenizer", weights], r"gpt2\.h5"),
        ):
            expect_mistake(ranks, [*words, *more], message)
        expect_mistake(ranks, ["complete", "--weights", large, "--prompt", "a"], r"has 99 tokens, and the model of '.*qwen3\.h5' only 96: give the model's own")


def main():
    if not os.path.isdir(HF):
        print(f"skipped: there are no models of Hugging Face in {HF}; ORTHANT_DATA names the folder of the data")
        raise SystemExit(77)
    ranks = [int(word) for word in sys.argv[2:]] or [1, 2]
    jobs = [(n, (greedy_text, name)) for n in ranks for name in ("gpt2", "llama")]
    jobs += [(n, (part,)) for n in ranks for part in (tokenizer_travels, char_model, mistakes)]
    raise SystemExit(attempt_all(jobs))


if __name__ == "__main__":
    main()
