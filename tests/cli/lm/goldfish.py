#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""64 passages that are trained again and again: goldfish.py PROGRAM [RESULTS.jsonl]

The plain loss learns at least 90 % of them by heart: from the first 16 of 64 tokens, the 48 that follow are completed exactly. The
goldfish loss with K = 4 and H = 13 learns at most 5 %. The text is tinyshakespeare with a byte-level BPE of 512 tokens; skipped without it.
"""

import json
import os
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", *parts) for parts in ([], ["..", "faults"])]
import hdf5  # noqa: E402
from language_models import Place, check  # noqa: E402
import program  # noqa: E402
from program import PROGRAM, Failure, expect_success  # noqa: E402

program.LIMIT = 1800

NUM_PASSAGES, LENGTH, PROMPT = 64, 64, 16
TEXT = os.path.join(os.environ.get("ORTHANT_DATA", ""), "datasets", "tinyshakespeare", "input.txt")


def recall(place, passages, name, *loss):
    """The share of passages that are completed exactly, and the last loss."""
    weights = place.file(name + ".h5")
    metrics = place.file(name + ".jsonl")
    expect_success(1, ["train-lm", "--tokens", place.tokens, "--layers", "2", "--hidden", "128", "--heads", "4", "--sequence", str(LENGTH),
                       "--global-batch", "16", "--steps", "1000", "--lr", "1e-3", "--warmup-steps", "50", "--weight-decay", "0", "--eval-every", "0",
                       "--save-weights", weights, "--metrics", metrics, *loss])
    prompts = ";".join(",".join(map(str, passage[:PROMPT])) for passage in passages)
    done = expect_success(1, ["complete", "--weights", weights, "--prompt-ids", prompts, "--print", "ids", "--temperature", "0",
                              "--max-tokens", str(LENGTH - PROMPT)])
    completed = [[int(word) for word in line.replace(",", " ").split()] for line in done.stdout.splitlines() if line.strip()]
    check(len(completed) == NUM_PASSAGES, f"{len(completed)} completions")
    exact = sum(found[-(LENGTH - PROMPT):] == passage[PROMPT:] for found, passage in zip(completed, passages))
    with open(metrics, encoding="utf-8") as file:
        losses = [line["loss"] for line in map(json.loads, file) if line["event"] == "step"]
    return exact / NUM_PASSAGES, losses[-1]


def main():
    if not os.path.exists(TEXT):
        print(f"skipped: there is no {TEXT}; ORTHANT_DATA names the folder of the data")
        raise SystemExit(77)
    with open(TEXT, encoding="utf-8") as file:
        text = file.read()
    place = Place("byte", text[: 3 * NUM_PASSAGES * LENGTH].encode())
    expect_success(1, ["tokenize", "--input", place.file("text.txt"), "--train-bpe", "512", "--train-fraction", "1", "-o", place.tokens, "--force"])
    with hdf5.File(hdf5.Library(hdf5.library_of(PROGRAM)), place.tokens) as file:
        tokens = list(file.read("/tokens/train").values)
    passages = [tokens[i * LENGTH : (i + 1) * LENGTH] for i in range(NUM_PASSAGES)]
    check(len(passages[-1]) == LENGTH, f"a text of {len(tokens)} tokens is too short")
    results = []
    for name, words in (("plain", []), ("goldfish", ["--goldfish", "4,13"])):
        share, loss = recall(place, passages, name, *words)
        results.append({"loss": name, "exact_recall": share, "last_training_loss": round(loss, 4), "passages": NUM_PASSAGES,
                        "prompt_tokens": PROMPT, "completed_tokens": LENGTH - PROMPT})
        print(json.dumps(results[-1]))
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in results)
    check(results[0]["exact_recall"] >= 0.9, "the plain loss forgets passages")
    check(results[1]["exact_recall"] <= 0.05, "the goldfish loss learns passages by heart")


try:
    main()
except Failure as failure:
    print(f"FAIL {failure}")
    raise SystemExit(1) from None
