#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Completions of texts: completions.py PROGRAM [RANKS ..]

The models of ORTHANT_DATA/reference/hf with a tokenizer whose token i is the character of code 32 + i. The greedy continuation is that of
transformers.
"""

import json
import math
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hf_models import HF, read_npy, require_models, write_npy  # noqa: E402
from program import Failure, attempt_all, expect_mistake, expect_success, require  # noqa: E402

END = 95  # <|endoftext|>


def check(condition, what):
    if not condition:
        raise Failure(what)


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
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}


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
    check(END not in continuation, f"{name}: the continuation ends")
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
            check(json.load(file) == tokenizer_json(), "exports another tokenizer")


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
        expect_mistake(ranks, ["complete", "--weights", weights, "--prompt", "der", "--tokenizer", "byte"], r"'byte' has a tokenizer of 256 tokens, but the model of .* has only \d+")
        with open(text, "w", encoding="utf-8") as file:
            file.write("abc")
        other = os.path.join(scratch, "other.h5")
        expect_success(1, ["tokenize", "--input", text, "-o", other, "--train-fraction", "1"])
        expect_mistake(ranks, ["complete", "--weights", weights, "--prompt", "a", "--tokenizer", other], r"was trained on another vocabulary than that of '.*other\.h5'")


def write_lines(path, lines):
    with open(path, "w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def batches_and_grids(ranks, name):
    """64 prompts of 1 to 12 tokens: the same completions in any batch and on any grid, drawn and greedy."""
    with tempfile.TemporaryDirectory() as scratch:
        weights, prompts = imported(scratch, name), os.path.join(scratch, "prompts.jsonl")
        ids = [[(31 * s * s + 7919 * t + 17 * s * t) % END for t in range(1 + s * 5 % 12)] for s in range(64)]
        write_lines(prompts, [{"prompt_ids": line} if s % 2 else {"prompt": text_of(line), "note": s} for s, line in enumerate(ids)])

        def completions(ranks, *more):
            output = os.path.join(scratch, "out.jsonl")
            expect_success(ranks, ["complete", "--weights", weights, "--prompts", prompts, "-o", output, "--force", "--max-tokens", "12",
                                   "--compute-dtype", "fp64", "--stop-ids", "7", "--stop", "zz", *more])
            return read_lines(output)

        for how in (["--temperature", "0"], ["--seed", "5", "--temperature", "1.5", "--top-k", "60", "--top-p", "0.98"]):
            expected = completions(1, *how)
            check(len(expected) == 64 and all(line["text"].isprintable() for line in expected), f"{name}: {expected[:2]}")
            check(len({line["text"] for line in expected}) > 32, f"{name}: the completions are alike")
            check(completions(1, *how, "--batch", "1") == expected, f"{name} {how}: one by one, there are other completions")
            check(completions(1, *how, "--batch", "23") == expected, f"{name} {how}: in batches of 23, there are other completions")
            for grid, count in (("2x1x1x1", 2), ("1x2x1x1", 2), ("1x1x2x1", 2), ("1x1x1x2", 2), ("2x2x1x1", 4)):
                if count <= ranks:
                    check(completions(count, *how, "--grid", grid) == expected, f"{name} {how} on {grid}: other completions")
        check(completions(1, "--seed", "6") != completions(1, "--seed", "5"), f"{name}: the seed changes nothing")


def scores_of(ranks, weights, requests, scratch, *more):
    path, output = os.path.join(scratch, "requests.jsonl"), os.path.join(scratch, "scores.jsonl")
    write_lines(path, requests)
    expect_success(ranks, ["evaluate-lm", "--weights", weights, "--log-likelihood", path, "-o", output, "--force", "--compute-dtype", "fp64", *more])
    return read_lines(output)


def log_probability(logits, token):
    largest = max(logits)
    return logits[token] - largest - math.log(sum(math.exp(number - largest) for number in logits))


def log_likelihoods(ranks, name):
    """Those of the fp64 logits of transformers."""
    with open(os.path.join(HF, name, "expected.json"), encoding="utf-8") as file:
        figures = json.load(file)
    requests, expected = [], []
    for ids, logits in zip(figures["input_ids"], figures["logits"]):
        for begin, end in ((1, 12), (4, 5), (7, 11)):
            context, continuation = ids[:begin], ids[begin:end]
            requests.append({"context_ids": context, "continuation_ids": continuation})
            expected.append((sum(log_probability(logits[t - 1], ids[t]) for t in range(begin, end)),
                             all(max(range(96), key=logits[t - 1].__getitem__) == ids[t] for t in range(begin, end)), end - begin))
            if END not in ids:
                requests.append({"context": text_of(context), "continuation": text_of(continuation)})
                expected.append(expected[-1])
    with open(os.path.join(HF, name, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    positions = config.get("n_positions") or config["max_position_embeddings"]
    prompt, continuation = expected_of(name)
    requests.append({"context_ids": prompt, "continuation_ids": continuation})
    with tempfile.TemporaryDirectory() as scratch:
        weights = imported(scratch, name)
        found = scores_of(ranks, weights, requests, scratch, "--global-batch", "5")
        check(found[-1]["is_greedy"], f"{name}: the greedy continuation is not greedy")
        for line, (number, is_greedy, count) in zip(found, expected):
            # RMSNorm and softmax of transformers are in fp32 (hf_models.py).
            check(abs(line["log_likelihood"] - number) <= 1e-6 * count, f"{name}: {line}, not {number}")
            check((line["is_greedy"], line["num_tokens"]) == (is_greedy, count), f"{name}: {line}")
        # Without a context the end token comes first; a context that is too long loses its beginning.
        empty, begun, long, cut = scores_of(ranks, weights, [
            {"continuation": "abc"}, {"context_ids": [END], "continuation": "abc", "continuation_ids": [65, 66, 67]},
            {"context_ids": [1, 2, 3] * 99, "continuation_ids": [4, 5]}, {"context_ids": ([1, 2, 3] * 99)[1 - positions:], "continuation_ids": [4, 5]}],
                                             scratch)
        check(abs(empty["log_likelihood"] - begun["log_likelihood"]) <= 1e-12, f"{name}: {empty} and {begun}")
        check(abs(long["log_likelihood"] - cut["log_likelihood"]) <= 1e-12, f"{name}: {long} and {cut}")


def windows(ranks):
    """--stride: the loss of the logits of the same windows."""
    with tempfile.TemporaryDirectory() as scratch:
        text, tokens, weights, metrics = (os.path.join(scratch, name) for name in ("t.txt", "t.h5", "w.h5", "m.jsonl"))
        with open(text, "w", encoding="utf-8") as file:
            file.write("abcabdacbdabcddcba" * 30)
        expect_success(1, ["tokenize", "--input", text, "-o", tokens])
        expect_success(1, ["train-lm", "--tokens", tokens, "--layers", "1", "--hidden", "16", "--heads", "4", "--sequence", "16", "--steps", "40",
                           "--global-batch", "8", "--eval-every", "0", "--save-weights", weights])

        def loss(ranks, *more):
            done = expect_success(ranks, ["evaluate-lm", "--weights", weights, "--tokens", tokens, "--compute-dtype", "fp64", "--metrics", metrics, *more])
            line = read_lines(metrics)[-1]
            require(line["num_tokens"] == 53, f"predicts {line['num_tokens']} tokens", done)
            return line["val_loss"]

        check(abs(loss(ranks, "--stride", "16") - loss(1)) <= 1e-12, "windows that do not overlap have another loss")
        with open(text, encoding="utf-8") as file:
            ids = [ord(letter) - ord("a") for letter in file.read()][-54:]
        for stride in (5, 1):
            total, done = 0.0, 0
            rows, ends = [], []
            for begin in range(0, 54, stride):
                end = min(begin + 17, 54)
                if done >= 53:
                    break
                rows.append(ids[begin:end - 1] + [0] * (17 - (end - begin)))
                ends.append((begin, end, done))
                done = end - 1
            write_npy(os.path.join(scratch, "ids.npy"), rows)
            expect_success(1, ["evaluate-lm", "--weights", weights, "--ids", os.path.join(scratch, "ids.npy"), "--logits", os.path.join(scratch, "l.npy"),
                               "--force", "--compute-dtype", "fp64"])
            shape, logits = read_npy(os.path.join(scratch, "l.npy"))
            for row, (begin, end, known) in enumerate(ends):
                for t in range(known + 1, end):
                    first = (row * shape[1] + t - 1 - begin) * shape[2]
                    total -= log_probability(logits[first:first + shape[2]], ids[t])
            found = loss(ranks, "--stride", str(stride))
            check(abs(found - total / 53) <= 1e-10, f"--stride {stride}: {found}, not {total / 53}")
        grid = f"1x{ranks}x1x1"
        loss(ranks, "--stride", "5", "--grid", grid)
        recorded = [line["grid"] for line in read_lines(metrics) if line["event"] == "run"][-1]
        check(recorded == grid, f"the metrics have the grid {recorded}, not {grid}")
        evaluate = ["evaluate-lm", "--weights", weights, "--tokens", tokens]
        expect_mistake(ranks, [*evaluate, "--stride", "17"], r"--stride 17 is longer than the sequences of 16")
        expect_mistake(ranks, [*evaluate, "--tokenizer", "byte"], r"--tokenizer is for the texts of --log-likelihood: leave it out")


def mistakes(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        weights, large = imported(scratch, "gpt2"), imported(scratch, "qwen3", extra=3)
        words, empty = ["complete", "--weights", weights], os.path.join(scratch, "empty.txt")
        lines, broken, long, out = (os.path.join(scratch, name) for name in ("lines.jsonl", "broken.jsonl", "long.jsonl", "out.jsonl"))
        write_lines(empty, [])
        write_lines(lines, [{"prompt": "a"}, {"prompt": "b"}, {"text": "c"}])
        write_lines(broken, [["a"]])
        write_lines(long, [{"prompt": "a"}, {"prompt": "a" * 40}, {"prompt_ids": [1] * 39}])
        requests = os.path.join(scratch, "requests.jsonl")
        write_lines(requests, [{"context": "a", "continuation": "b"}, {"context": "a", "continuation": ""}])
        scoring = ["evaluate-lm", "--weights", weights, "--log-likelihood"]
        for more, message in (
                ([], r"give --prompt TEXT, --prompt-file F, --prompt-ids 5,17,3, or --prompts F\.jsonl"),
                (["--prompt", ""], r"--prompt is empty: a completion needs a token"),
                (["--prompt-file", empty], r"empty\.txt is empty"),
                (["--prompt-file", "none.txt"], r"none\.txt"),
                (["--prompt", "a", "--prompt-ids", "5"], r"--prompt and --prompt-ids exclude each other"),
                (["--prompt", "a" * 40], r"a prompt of 40 tokens and 16 new ones are more than the 32 positions of"),
                (["--prompts", lines], r"--prompts and --output go together"),
                (["--prompts", lines, "-o", out], r"lines\.jsonl, line 3: it has neither a prompt nor prompt_ids"),
                (["--prompts", broken, "-o", out], r"broken\.jsonl, line 1: it is no JSON object"),
                (["--prompts", long, "-o", out], r"long\.jsonl, line 2: a prompt of 40 tokens and 16 new ones are more than the 32 positions of"),
                (["--prompts", empty, "-o", out], r"empty\.txt has no lines"),
                (["--prompt", "a", "--stop="], r"--stop: 1 required TEXT missing"),
                (["--prompt-ids", "5", "--stop", "a"], r"--stop compares texts: give --tokenizer"),
                (["--prompt", "a", "--tokenizer", "none.json"], r"there is no 'none\.json'"),
                (["--prompt", "a", "--tokenizer", weights], r"gpt2\.h5"),
        ):
            expect_mistake(ranks, [*words, *more], message)
        for more, message in (
                ([requests], r"--log-likelihood and --output go together"),
                ([requests, "-o", out], r"requests\.jsonl, line 2: its continuation has no tokens"),
                ([lines, "-o", out], r"lines\.jsonl, line 1: it has neither a continuation nor continuation_ids"),
                ([requests, "-o", out, "--tokens", "t.h5"], r"--log-likelihood excludes --tokens and --ids"),
                ([requests, "-o", out, "--sequence", "8"], r"--sequence is for --tokens: leave it out with --log-likelihood"),
                ([requests, "-o", out, "--stride", "4"], r"--stride is for --tokens: leave it out with --log-likelihood"),
                ([requests, "-o", out, "--heads", "3"], r"--heads 3: the weights of '.*gpt2\.h5' are of another network"),
        ):
            expect_mistake(ranks, [*scoring, *more], message)
        expect_mistake(ranks, ["evaluate-lm", "--log-likelihood", requests, "-o", out], r"give --weights W\.h5")
        expect_mistake(ranks, ["complete", "--weights", large, "--prompt", "a"], r"'.*qwen3\.h5' has a tokenizer of 99 tokens, but the model of '.*qwen3\.h5' has only 96: give the model's own tokenizer")


def main():
    require_models()
    ranks = [int(word) for word in sys.argv[2:]] or [1, 2]
    jobs = [(n, (greedy_text, name)) for n in ranks for name in ("gpt2", "llama")]
    jobs += [(n, (log_likelihoods, name)) for n in ranks for name in ("gpt2", "llama3", "mixtral")]
    jobs += [(max(ranks), (batches_and_grids, name)) for name in ("gpt2", "qwen3_moe")]
    jobs += [(n, (part,)) for n in ranks for part in (tokenizer_travels, char_model, windows, mistakes)]
    raise SystemExit(attempt_all(jobs))


if __name__ == "__main__":
    main()
