#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Link prediction from edges that are held out to weights that are judged: links.py PROGRAM"""

import ast
import os
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from program import attempt_all, expect_mistake, expect_success, require  # noqa: E402
from trainings import lines_and_answer, losses  # noqa: E402

BLOCKS = ["--generate", "sbm", "--vertices", "300", "--edges", "2400", "--features", "6", "--classes", "3"]
SPLIT = ["--edge-split", "0.1,0.15"]
TRAIN = ["--task", "links", "--layers", "2", "--hidden", "12", "--embedding", "6", "--dropout", "0.2", "--compute-dtype", "fp64", "--eval-every", "2"]
SCORES = [f"{part}_{name}" for part in ("val", "test")
          for name in ("acc", "loss", "roc_auc", "mrr", "hits_at_10", "hits_at_20", "hits_at_50", "hits_at_100")]


def store_in(scratch, ranks=1, *more):
    store = os.path.join(scratch, "-".join(("g", *more)).replace("--", "") + ".h5")
    expect_success(ranks, ["partition", *BLOCKS, "-o", store, "--force", *more])
    return store


def npy_shape(path):
    with open(path, "rb") as file:
        file.seek(8)  # magic and version
        return ast.literal_eval(file.read(struct.unpack("<H", file.read(2))[0]).decode())["shape"]


def stores_know_their_links(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        whole, store = store_in(scratch), store_in(scratch, ranks, *SPLIT)
        alone = store_in(scratch, 1, *SPLIT, "--seed", "0")
        same = subprocess.run(["h5diff", store, alone], capture_output=True, text=True, check=False)
        done = expect_success(ranks, ["info", store, "--verify"])
        require(same.returncode == 0, f"another number of ranks makes another file: {same.stdout}", done)
        require("links       held out: valid " in done.stdout, "says nothing of links", done)
        require("links" not in expect_success(1, ["info", whole]).stdout, "says something of links that are not there", done)
        printed = expect_success(1, ["partition", *BLOCKS, *SPLIT, "-o", store, "--force"])
        require("held out of the matrix: valid " in printed.stdout, "does not say what was held out", printed)


def trainings_are_judged(ranks):
    """It learns; weights are judged as the training judged them, on other grids too; a stopped training goes on as if it had not."""
    with tempfile.TemporaryDirectory() as scratch:
        store = store_in(scratch, 1, *SPLIT)
        weights, best, folder = (os.path.join(scratch, name) for name in ("w.h5", "b.h5", "c"))
        words = ["train", "--graph", store, *TRAIN]
        lines, done = lines_and_answer(ranks, scratch, [*words, "--epochs", "30", "--save-weights", weights, "--save-best", best])
        last = lines[-1]["last"]
        require(sorted(last) == sorted(SCORES), f"has the scores {sorted(last)}", done)
        require(last["test_roc_auc"] > 0.6 and losses(lines)[-1] < losses(lines)[0], f"does not learn: {last}", done)
        require("Hits@20" in done.stdout and "MRR" in done.stdout and "accuracy" not in done.stdout, "prints no table of links", done)
        require(any("val_mrr" in line for line in lines if line["event"] == "epoch"), "has no scores of epochs", done)
        for file, scores in ((weights, last), (best, lines[-1]["best"])):
            found, done = lines_and_answer(1, scratch, ["evaluate", "--graph", store, "--weights", file, "--compute-dtype", "fp64"])
            require(sorted(found[-1]) == sorted([*SCORES, "event"]), f"evaluates {sorted(found[-1])}", done)
            require(all(abs(found[-1][name] - scores[name]) < 1e-10 for name in SCORES), f"{found[-1]}, {scores}", done)
        aucs = {line["epoch"]: line["val_roc_auc"] for line in lines if line["event"] == "epoch" and "val_roc_auc" in line}
        require(lines[-1]["best_epoch"] == max(aucs, key=lambda epoch: (aucs[epoch], -epoch)), f"{lines[-1]['best_epoch']} of {aucs}", done)

        lines_and_answer(ranks, scratch, [*words, "--epochs", "4", "--checkpoint", folder])
        told = expect_success(1, ["info", os.path.join(folder, sorted(name for name in os.listdir(folder) if name.endswith(".h5"))[-1])])
        require(re.search(r"^best +epoch \d, ROC-AUC valid 0\.\d{4}, test 0\.\d{4}$", told.stdout, re.M) is not None, "has no ROC-AUC", told)
        for monitor in ("mae", "r2"):
            expect_mistake(ranks, [*words, "--monitor", monitor], f"--monitor {monitor} is for targets of regression: leave it out with --task links")
        rest, done = lines_and_answer(1, scratch, [*words, "--epochs", "8", "--checkpoint", folder, "--resume", "auto"])
        expected, _ = lines_and_answer(1, scratch, [*words, "--epochs", "8"])
        require(all(abs(a - b) < 1e-10 for a, b in zip(losses(rest)[-4:], losses(expected)[-4:])), f"{losses(rest)}, {losses(expected)}", done)
        expect_mistake(ranks, ["train", "--graph", store, *("7" if word == "6" else word for word in TRAIN), "--epochs", "8", "--checkpoint", folder,
                               "--resume", "auto"],
                       r"its --embedding is 6, here it is 7")

        embeddings = os.path.join(scratch, "e.npy")
        expect_success(ranks, ["evaluate", "--graph", store, "--weights", weights, "--predictions", embeddings, "--embeddings", "1"])
        require(npy_shape(embeddings) == (300, 6), "writes no embeddings", done)
        expect_mistake(ranks, ["evaluate", "--graph", store, "--weights", weights, "--predictions", os.path.join(scratch, "p.csv")],
                       r"predicts links, and no classes: write embeddings alone, with --embeddings LAYER and --predictions FILE.npy")
        done = expect_success(ranks, ["evaluate", "--graph", store, "--weights", weights, "--schedule", "pmm3d"])
        require("--schedule has no effect: --task links needs --schedule rows" in done.stderr, "does not warn", done)


def perceptrons_score_links(ranks):
    """It learns and is judged as it trained; a stopped training goes on; only weights of the same decoder are a start."""
    with tempfile.TemporaryDirectory() as scratch:
        store = store_in(scratch, 1, *SPLIT)
        weights, plain, folder = (os.path.join(scratch, name) for name in ("w.h5", "p.h5", "c"))
        words = ["train", "--graph", store, *TRAIN, "--decoder", "mlp", "--decoder-hidden", "5"]
        lines, done = lines_and_answer(ranks, scratch, [*words, "--epochs", "30", "--save-weights", weights])
        last = lines[-1]["last"]
        require(last["test_roc_auc"] > 0.6 and losses(lines)[-1] < losses(lines)[0], f"does not learn: {last}", done)
        shapes = subprocess.run(["h5ls", "-r", weights], capture_output=True, text=True, check=True).stdout.replace("\\", "")
        for name, shape in (("weight", "{6, 5}"), ("bias", "{5}"), ("second.weight", "{5, 1}"), ("second.bias", "{1}")):
            require(any(line.split()[0] == f"/parameters/decoder.{name}" and line.endswith(shape) for line in shapes.splitlines()), shapes, done)
        found, done = lines_and_answer(1, scratch, ["evaluate", "--graph", store, "--weights", weights, "--compute-dtype", "fp64"])
        require(all(abs(found[-1][name] - last[name]) < 1e-10 for name in SCORES), f"{found[-1]}, {last}", done)

        alone, _ = lines_and_answer(1, scratch, [*words, "--epochs", "8"])
        lines_and_answer(ranks, scratch, [*words, "--epochs", "4", "--checkpoint", folder])
        rest, done = lines_and_answer(ranks, scratch, [*words, "--epochs", "8", "--checkpoint", folder, "--resume", "auto"])
        require(all(abs(a - b) < 1e-10 for a, b in zip(losses(rest)[-4:], losses(alone)[-4:])), f"{losses(rest)}, {losses(alone)}", done)
        expect_mistake(ranks, [*words[:-4], "--epochs", "8", "--checkpoint", folder, "--resume", "auto"], r"its --decoder is mlp, here it is dot")

        # TRAIN has --embedding 6: a width that is given is compared with the one that is not.
        as_given, as_default = os.path.join(scratch, "g"), [*words[:-2], "--epochs"]
        expect_success(ranks, [*as_default, "1", "--checkpoint", as_given])
        expect_success(ranks, [*as_default, "2", "--decoder-hidden", "6", "--checkpoint", as_given, "--resume", "auto"])
        expect_success(ranks, [*as_default, "3", "--checkpoint", as_given, "--resume", "auto"])
        expect_mistake(ranks, [*words, "--epochs", "4", "--checkpoint", as_given, "--resume", "auto"], r"its --decoder-hidden is 6, here it is 5")
        expect_mistake(1, ["export-weights", weights, "-o", os.path.join(scratch, "w.safetensors")], r"has a perceptron that scores links")

        expect_success(ranks, [*words, "--epochs", "1", "--init-from", weights])
        expect_success(ranks, [*words[:-4], "--epochs", "1", "--save-weights", plain])
        expect_mistake(ranks, [*words, "--epochs", "1", "--init-from", plain], r"its decoder is dot, that of the model mlp")
        expect_mistake(ranks, [*words[:-4], "--epochs", "1", "--init-from", weights], r"its decoder is mlp, that of the model dot")
        expect_mistake(ranks, [*words[:-1], "4", "--epochs", "1", "--init-from", weights], r"its decoder_hidden is 5, that of the model 4")
        expect_success(ranks, [*words[:-2], "--no-bias", "--epochs", "2"])


def seeds_and_models(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        store = store_in(scratch, 1, *SPLIT)
        lines, done = lines_and_answer(ranks, scratch, ["train", "--graph", store, *TRAIN, "--epochs", "3", "--seeds", "2"])
        aucs = [line["last"]["test_roc_auc"] for line in lines if line["event"] == "done"]
        require(len(aucs) == 2 and abs(lines[-1]["last"]["test"]["mean"] - sum(aucs) / 2) < 1e-12, f"{aucs}, {lines[-1]}", done)
        require("ROC-AUC" in done.stdout.split("2 seeds")[1], "names another measure", done)
        for model in ("sage", "gin", "gat", "appnp"):
            found, done = lines_and_answer(ranks, scratch, ["train", "--graph", store, *TRAIN, "--epochs", "4", "--model", model,
                                                    *(["--heads", "2"] if model == "gat" else [])])
            require(losses(found)[-1] < losses(found)[0], f"{model} does not learn: {losses(found)}", done)
        nodes, done = lines_and_answer(ranks, scratch, ["train", "--graph", store, "--epochs", "2", "--hidden", "8"])
        require("val_acc" in nodes[-1]["last"] and "val_mrr" not in nodes[-1]["last"], "classes are not trained on it", done)


def mistakes(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        out = os.path.join(scratch, "x.h5")
        for words, message in (
                (["--edge-split", "0.1"], r"--edge-split takes two shares of the edges, valid,test, such as 0.05,0.1: it got 1"),
                (["--edge-split", "0.1,0.2,0.3"], r"it got 3"),
                (["--edge-split", "0.5,0.5"], r"together more than 0 and less than 1"),
                (["--edge-split", "0,0"], r"together more than 0 and less than 1"),
                (["--edge-split", "1.5,0"], r"--edge-split: is 1.5, but must be at least 0 and at most 1"),
                ([*SPLIT, "--directed"], r"--edge-split holds out edges of undirected graphs: leave out --directed"),
                ([*SPLIT, "--duplicates", "keep"], r"leave out --duplicates keep"),
        ):
            expect_mistake(ranks, ["partition", *BLOCKS, "-o", out, *words], message)
        store, plain = store_in(scratch, 1, *SPLIT), store_in(scratch)
        train = ["train", "--graph", store, "--epochs", "1", "--task", "links"]
        for words, message in (
                (["--mode", "minibatch"], r"--task links is trained on the full graph: "),
                (["--comm-dtype", "bf16"], r"--comm-dtype and --operand-dtype other than fp32 go with --task nodes"),
                (["--operand-dtype", "bf16"], r"--comm-dtype and --operand-dtype other than fp32 go with --task nodes"),
                (["--class-weights", "balanced"], r"--class-weights is of classes of vertices"),
                (["--label-smoothing", "0.1"], r"--label-smoothing is of classes of vertices"),
                (["--loss", "focal"], r"--loss is of classes of vertices"),
                (["--roc-auc"], r"--roc-auc is always found with --task links"),
                (["--embedding", "0"], r"--embedding: is 0, but must be at least 1"),
                (["--decoder", "bilinear"], r"'bilinear' is none of dot, mlp"),
                (["--decoder-hidden", "8"], r"--decoder-hidden is for --decoder mlp"),
                (["--decoder", "mlp", "--decoder-hidden", "0"], r"--decoder-hidden: is 0, but must be at least 1"),
                (["--task", "edges"], r"'edges' is none of nodes, classification, regression, links"),
        ):
            expect_mistake(ranks, [*train, *words], message)
        expect_mistake(ranks, ["train", "--graph", store, "--epochs", "1", "--embedding", "8"], r"--embedding is for --task links")
        expect_mistake(ranks, ["train", "--graph", store, "--epochs", "1", "--decoder", "mlp"], r"--decoder is for --task links")
        expect_mistake(ranks, ["train", "--graph", plain, "--epochs", "1", "--task", "links"],
                       r"has no held-out edges to predict; partition it with --edge-split")
        weights = os.path.join(scratch, "w.h5")
        expect_success(1, [*train, "--save-weights", weights, "--hidden", "8", "--layers", "2"])
        expect_mistake(ranks, ["evaluate", "--graph", plain, "--weights", weights], r"has no held-out edges to predict")
        one_part = store_in(scratch, 1, "--edge-split", "0,0.2")
        expect_mistake(ranks, ["train", "--graph", one_part, "--task", "links", "--epochs", "1", "--save-best", out],
                       r"--save-best goes by the ROC-AUC of validation edges, and .* has none")
        damaged = os.path.join(scratch, "d.h5")
        with open(store, "rb") as file:
            data = file.read()
        facts = data.index(b'"num_held_out":[0,')
        with open(damaged, "wb") as file:
            file.write(data[:facts] + data[facts:].replace(b'"num_held_out":[0,', b'"num_held_out":[1,', 1))
        expect_mistake(ranks, ["info", damaged], r"damaged")


def main():
    parts = [stores_know_their_links, trainings_are_judged, perceptrons_score_links, seeds_and_models, mistakes]
    raise SystemExit(attempt_all([(ranks, (function,)) for ranks in (1, 3) for function in parts]))


if __name__ == "__main__":
    main()
