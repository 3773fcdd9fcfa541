#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GAT and GATv2 through the program: attention.py PROGRAM

They learn, on the full graph and on mini-batches; weights are evaluated and say how many heads they have; a training goes on from its
checkpoint on another grid.
"""

import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from program import attempt_all, expect_mistake, expect_success, require  # noqa: E402
from trainings import lines_of, losses  # noqa: E402

GENERATE = ["generate", "--kind", "sbm", "--vertices", "150", "--edges", "700", "--features", "6", "--classes", "3", "--format", "ogb"]
HEADS = ["--heads", "4", "--output-heads", "2"]
MODELS = {name: ["--model", name, *HEADS, "--activation", "elu", "--hidden", "8", "--compute-dtype", "fp64"] for name in ("gat", "gatv2")}
BATCHES = ["--mode", "minibatch", "--batch", "50"]
MODES = {"full": [], "batches": BATCHES, "clusters": [*BATCHES, "--sampler", "clusters"]}


def store_in(scratch):
    graph, store = os.path.join(scratch, "g"), os.path.join(scratch, "g.h5")
    expect_success(1, [*GENERATE, "-o", graph])
    expect_success(1, ["partition", "--input", graph, "-o", store, "--clusters", "9"])
    return store


def all_close(found, expected):
    return len(found) == len(expected) and all(abs(a - b) < 1e-10 for a, b in zip(found, expected))


def they_learn(ranks):
    """The classes of a graph of communities, better than by chance, which is a third."""
    with tempfile.TemporaryDirectory() as scratch:
        store = store_in(scratch)
        for name, model in MODELS.items():
            for title, mode in MODES.items():
                words = ["train", "--graph", store, *model, *mode, "--attention-dropout", "0.2", "--epochs", "40", "--eval-every", "40", "--lr", "0.01"]
                lines = lines_of(ranks, scratch, words)
                done = expect_success(1, ["info", store])
                found = losses(lines)
                require(found[-1] < 0.7 * found[0], f"{name}, {title}: {found[0]} becomes {found[-1]}", done)
                accuracy = lines[-1]["last"]["test_acc"]
                require(accuracy > 0.6, f"{name}, {title}: test accuracy {accuracy}", done)
                run = lines[0]
                if mode:
                    require(run["batches"]["edges"] == "attention", f"records {run['batches']}", done)


def weights_are_evaluated(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        store = store_in(scratch)
        weights = os.path.join(scratch, "w.h5")
        for name, model in MODELS.items():
            for mode in (MODES["full"], MODES["batches"]):
                words = ["train", "--graph", store, *model, *mode, "--epochs", "4", "--eval-every", "2"]
                trained = lines_of(ranks, scratch, [*words, "--save-weights", weights])[-2]
                evaluate = ["evaluate", "--graph", store, "--weights", weights, "--compute-dtype", "fp64"]
                found = lines_of(1, scratch, [*evaluate, "--predictions", os.path.join(scratch, "p.h5"), "--probabilities", "--embeddings", "1"])[-1]
                done = expect_success(1, ["info", weights])
                for score in ("val_loss", "test_loss", "val_acc"):
                    require(abs(found[score] - trained[score]) < 1e-10, f"{name}: {score} {found[score]}, {trained[score]}", done)
                require(name in done.stdout and "4" in done.stdout, "says nothing of its heads", done)
                # Training goes on from them, and not with other heads.
                goes_on = losses(lines_of(ranks, scratch, [*words, "--init-from", weights, "--force"]))
                require(len(goes_on) == 4, f"{goes_on}", done)
                other = ["2" if word == "4" and words[i - 1] == "--heads" else word for i, word in enumerate(words)]
                expect_mistake(ranks, [*other, "--init-from", weights], r"another architecture: its heads is 4")
            require("needs --schedule rows, which is used instead" in expect_success(ranks, [*evaluate, "--schedule", "pmm3d"]).stderr, "says nothing of the schedule", done)


def checkpoints_go_on(ranks):
    """On another number of ranks, too; in mini-batches at any step."""
    with tempfile.TemporaryDirectory() as scratch:
        store = store_in(scratch)
        for name, model in MODELS.items():
            for title, mode in MODES.items():
                words = ["train", "--graph", store, *model, *mode, "--dropout", "0.4", "--attention-dropout", "0.3", "--epochs", "4", "--eval-every", "2"]
                whole = losses(lines_of(ranks, scratch, words))
                folder = ["--checkpoint", os.path.join(scratch, f"{name}-{title}")]
                half = ["2" if word == "4" and words[i - 1] == "--epochs" else word for i, word in enumerate(words)]
                lines_of(1, scratch, [*half, *folder])
                rest = losses(lines_of(ranks, scratch, [*words, *folder, "--resume", "auto"]))
                done = expect_success(1, ["info", store])
                require(all_close(rest, whole), f"{name}, {title}: goes on as {rest}, not {whole}", done)


def plans_say_what_is_sent(ranks):
    """Of the very batches that are drawn, by what the training counts."""
    with tempfile.TemporaryDirectory() as scratch:
        store = store_in(scratch)
        for model in MODELS.values():
            grid = f"1x{ranks}x1x1"
            shape = [*model[:8], "--batch", "50", "--mode", "minibatch", "--eval-every", "0"]
            done = expect_success(1, ["plan", "--graph", store, *shape, "--widths", "6-8-3", "--ranks", str(ranks), "--exact", "--json", "--top", "20"])
            planned = [json.loads(line) for line in done.stdout.splitlines()]
            of_grid = [line for line in planned if line["grid"] == grid]
            require(len(of_grid) == 1 and of_grid[0]["schedule"] == "rows", f"plans {planned}", done)
            words = ["train", "--graph", store, *model[:10], "--layers", "2", "--batch", "50", "--mode", "minibatch", "--eval-every", "0", "--epochs", "1",
                     "--grid", grid]  # in fp32
            epoch = [line for line in lines_of(ranks, scratch, words) if line["event"] == "epoch"][0]
            require(epoch["sent_bytes"] <= ranks * of_grid[0]["sent_bytes"] and (ranks == 1 or epoch["sent_bytes"] > of_grid[0]["sent_bytes"]),
                    f"sent {epoch['sent_bytes']}, planned {of_grid[0]['sent_bytes']}", done)


def bench_has_the_scores(ranks):
    """Scores, softmax and their adjoints are among the products of an epoch, with the bytes of their numbers."""
    with tempfile.TemporaryDirectory() as scratch:
        store = store_in(scratch)
        for name, model in MODELS.items():
            words = ["bench", "epoch", "--graph", store, *model, "--layers", "2", "--dropout", "0", "--epochs", "1", "--stream-mib", "4", "--gemm-size", "64"]
            done = expect_success(ranks, words)
            line = json.loads(next(text for text in done.stdout.splitlines() if text.startswith("{")))
            scores, ends = {"gat": ("leaky(s + t)", "ds, dt"), "gatv2": ("a leaky(L + R)", "dL, dR")}[name]
            expected = [f"alpha = softmax({scores}), Q = alpha V", f"dalpha = dQ V^T, softmax', {ends}", "dV = alpha^T dQ"]
            for layer in (0, 1):
                found = {row["product"]: row for row in line["products"] if row["layer"] == layer and row["kind"] == "spmm"}
                require(list(found) == expected, f"layer {layer} of {name} has {list(found)}", done)
                require(all(found[text]["bytes"] > found["dV = alpha^T dQ"]["bytes"] for text in expected[:2]), f"bytes {found}", done)
            require(abs(line["ratio"] - line["seconds"] / line["bare_seconds"]) < 1e-9, f"ratio {line['ratio']}", done)


def mistakes(ranks):
    batches = ["train", "--dataset", "karate", "--mode", "minibatch", "--batch", "9"]
    for name in MODELS:
        model = ["--model", name]
        expect_mistake(ranks, [*batches, *model, "--hidden", "9"], r"--heads must divide --hidden: .*9 columns and 8 heads")


def main():
    both = [they_learn, weights_are_evaluated, checkpoints_go_on, plans_say_what_is_sent, bench_has_the_scores, mistakes]
    raise SystemExit(attempt_all([(ranks, (function,)) for ranks in (1, 3) for function in both]))


if __name__ == "__main__":
    main()
