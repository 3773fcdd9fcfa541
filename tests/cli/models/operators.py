#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Graphs that cannot be normalized, or that teach little, and what each command says of them: operators.py PROGRAM"""

import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from program import attempt_all, expect_mistake, expect_success, require, run  # noqa: E402

PAD = "".join(f"{i} {i + 1} 1\n" for i in range(4, 11))  # vertices 4 to 11
NUM_VERTICES = 12
# Edges; for each --normalize with self loops added: the vertices that do not fit in fp32 and in fp64, and the first of them.
GRAPHS = {
    "good": ("0 1 0.5\n1 2 2\n2 3 1\n" + PAD, {"sym": (0, 0), "row": (0, 0)}, 0),
    "negative": ("0 1 1\n1 2 -3\n2 3 1\n" + PAD, {"sym": (2, 2), "row": (0, 0)}, 1),
    "cancelling": ("0 1 0.1\n0 2 0.2\n0 3 -1.3\n3 2 2\n" + PAD, {"sym": (1, 1), "row": (1, 1)}, 0),
    "zero sums": ("0 1 -1\n1 2 2\n2 3 -1\n" + PAD, {"sym": (2, 2), "row": (2, 2)}, 0),
    "overflowing": ("0 1 3e38\n0 2 3e38\n1 2 1\n2 3 1\n" + PAD, {"sym": (1, 0), "row": (3, 0)}, 0),
    "huge": ("0 1 1e38\n2 3 1\n" + PAD, {"sym": (0, 0), "row": (2, 0)}, 0),
    "overflowing and cancelling": ("0 1 3e38\n0 2 -3e38\n2 3 1\n" + PAD, {"sym": (2, 2), "row": (3, 1)}, 0),
    "denormal": ("0 1 1e-40\n2 3 1\n" + PAD, {"sym": (0, 0), "row": (0, 0)}, 0),
    "zero weights": (re.sub(r" \S+\n", " 0\n", "0 1 1\n2 3 1\n3 4 1\n" + PAD), {"sym": (0, 0), "row": (0, 0)}, 0),
}
MODEL = ["--layers", "2", "--hidden", "4"]


def refusal(normalize, count, first, precision=r"fp\d+"):
    return (rf"--normalize {normalize} needs .* in {precision}, and those of {count} of {NUM_VERTICES} vertices are not, "
            rf"first vertex {first} with .*; alternatives: .*store without weights")


def partition(folder, name, normalize, store, ranks=1):
    edges = os.path.join(folder, "edges.txt")
    with open(edges, "w", encoding="utf-8") as file:
        file.write(GRAPHS[name][0])
    return run(ranks, ["partition", "--input", edges, "--normalize", normalize, "--random-features", "4", "--random-labels", "2",
                       "--random-split", "0.5,0.25,0.25", "-o", store, "--force"])


def partitions(ranks, name):
    """partition refuses what no precision holds, and says what fp32 or another --normalize will be refused for."""
    _, unfit, first = GRAPHS[name]
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "g.h5")
        for normalize in ("sym", "row", "none"):
            done = partition(folder, name, normalize, store, ranks)
            if normalize != "none" and unfit[normalize][1]:
                require(done.returncode == 2 and re.search(refusal(normalize, unfit[normalize][1], first, "fp64"), done.stderr),
                        f"--normalize {normalize} is not refused as it should be", done)
                require(not os.path.exists(store), "leaves a store", done)
                continue
            require(done.returncode == 0, f"--normalize {normalize} is refused", done)
            told = re.findall(r"^warning      cannot be used for training on this graph: --normalize (\w+) needs .* in (fp\d+), and those of (\d+) of",
                              done.stdout, re.M)
            due = [(each, "fp64", str(in_fp64)) if in_fp64 else (each, "fp32", str(in_fp32))
                   for each, (in_fp32, in_fp64) in unfit.items() if in_fp32]
            require(told == due, f"announces {told}, not {due}", done)
            has_effect = "operator of" in done.stdout
            require(has_effect == (name == "zero weights"), "warns of the identity, or does not", done)
            os.remove(store)


def weights_of_good(folder):
    store, weights = os.path.join(folder, "good.h5"), os.path.join(folder, "w.h5")
    partition(folder, "good", "none", store)
    expect_success(1, ["train", "--graph", store, *MODEL, "--epochs", "1", "--save-weights", weights])
    return weights


def trainings(ranks, name):
    """Every command that makes an operator refuses it with the counts, and takes all others."""
    _, unfit, first = GRAPHS[name]
    with tempfile.TemporaryDirectory() as folder:
        store, weights = os.path.join(folder, "g.h5"), weights_of_good(folder)
        done = partition(folder, name, "none", store)
        require(done.returncode == 0, "--normalize none is refused", done)
        for normalize, (in_fp32, in_fp64) in unfit.items():
            words = ["--graph", store, "--normalize", normalize]
            train = ["train", *words, *MODEL, "--epochs", "2"]
            if not in_fp32:
                done = expect_success(ranks, train)
                require(("is the identity" in done.stderr) == (name == "zero weights"), "warns of the identity, or does not", done)
                continue
            pattern = refusal(normalize, in_fp32, first, "fp32")
            for command in (train, train + ["--mode", "minibatch", "--batch", "6"], ["bench", "epoch", *words, *MODEL],
                            ["evaluate", *words, "--weights", weights], ["plan", *words, *MODEL, "--ranks", "4"]):
                expect_mistake(ranks, command, pattern)
            if in_fp64:
                expect_mistake(ranks, train + ["--compute-dtype", "fp64"], refusal(normalize, in_fp64, first, "fp64"))
            else:
                expect_success(ranks, train + ["--compute-dtype", "fp64"])


def self_loops(ranks):
    """Without self loops there are fewer weights to a degree, and maybe no edge at all."""
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "g.h5")
        train = ["train", "--graph", store, "--epochs", "1", *MODEL, "--self-loops", "drop", "--normalize"]
        partition(folder, "denormal", "none", store)
        expect_mistake(ranks, train + ["row"], refusal("row", 2, 0, "fp32"))
        expect_mistake(ranks, ["train", "--graph", store, "--epochs", "1", *MODEL, "--model", "sage"],
                       rf"those of 2 of {NUM_VERTICES} vertices .*alternatives: double precision .--compute-dtype fp64., a store without weights")
        expect_success(ranks, train + ["sym"])
        partition(folder, "zero weights", "none", store)
        expect_mistake(ranks, train + ["sym"], refusal("sym", NUM_VERTICES, 0, "fp32"))
        edges = os.path.join(folder, "loops.txt")
        with open(edges, "w", encoding="utf-8") as file:
            file.write("".join(f"{i} {i}\n" for i in range(NUM_VERTICES)))
        done = expect_success(ranks, ["partition", "--input", edges, "--self-loops", "drop", "--random-features", "4", "--random-labels",
                                      "2", "--random-split", "0.5,0.25,0.25", "-o", store, "--force"])
        identity = rf"is the identity: no edge is between two of its {NUM_VERTICES} vertices"
        require(re.search(rf"^warning      the operator of .* {identity}", done.stdout, re.M), "does not warn", done)
        done = expect_success(ranks, ["train", "--graph", store, "--epochs", "1", *MODEL])
        require(re.search(identity, done.stderr), "does not warn", done)
        done = expect_success(ranks, train + ["none"])
        require(re.search(r"is zero: no edge", done.stderr), "does not warn", done)


def batches(ranks):
    """Weights that a whole row can bear may leave a batch without a positive degree."""
    edges = "0 1 9\n1 2 -2\n2 3 9\n" + PAD
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "g.h5")
        with open(os.path.join(folder, "e.txt"), "w", encoding="utf-8") as file:
            file.write(edges)
        expect_success(1, ["partition", "--input", os.path.join(folder, "e.txt"), "--random-features", "4", "--random-labels", "2",
                           "--random-split", "0.5,0.25,0.25", "-o", store])
        train = ["train", "--graph", store, *MODEL, "--mode", "minibatch", "--batch", "6", "--epochs", "1", "--batch-edges"]
        expect_success(ranks, train + ["rescale"])
        expect_mistake(ranks, train + ["renormalize"], r"--batch-edges renormalize .* 2 of 12 vertices .*first vertex 1 with -1; give")


def products(ranks):
    """bench spmm multiplies by the operator of the store."""
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "g.h5")
        partition(folder, "overflowing", "sym", store)
        spmm = ["bench", "spmm", "--graph", store, "--widths", "4", "--repeat", "1", "--dtype"]
        expect_mistake(ranks, spmm + ["fp32"], refusal("sym", 1, 0, "fp32"))
        expect_success(ranks, spmm + ["fp64"])


def links(ranks):
    with tempfile.TemporaryDirectory() as folder:
        store, edges = os.path.join(folder, "g.h5"), os.path.join(folder, "e.txt")
        with open(edges, "w", encoding="utf-8") as file:
            file.write("".join(f"{i} {(i + step) % 12} -3\n" for i in range(12) for step in (1, 2)))
        expect_success(1, ["partition", "--input", edges, "--normalize", "row", "--random-features", "4", "--edge-split", "0.1,0.1",
                           "-o", store])
        train = ["train", "--task", "links", "--graph", store, *MODEL, "--epochs", "1", "--normalize"]
        expect_success(ranks, train + ["row"])
        expect_mistake(ranks, train + ["sym"], refusal("sym", 12, 0, "fp32"))


def data(ranks):
    """One warning each, when the store is made and when it is trained on."""
    with tempfile.TemporaryDirectory() as folder:
        def write(name, text):
            path = os.path.join(folder, "g", name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        write("raw/edge.csv", "0,1\n1,2\n2,3\n3,4\n4,5\n")
        write("raw/num-node-list.csv", "6\n")
        write("raw/num-edge-list.csv", "5\n")
        write("raw/node-label.csv", "1\n1\n-100\n1\n1\n-1\n")
        write("raw/node-feat.csv", "1,2\n" * 6)
        write("split/s/train.csv", "0\n1\n")
        write("split/s/valid.csv", "")
        write("split/s/test.csv", "3\n4\n5\n")
        store = os.path.join(folder, "g.h5")
        made = expect_success(ranks, ["partition", "--input", os.path.join(folder, "g"), "-o", store])
        trained = expect_success(ranks, ["train", "--graph", store, "--epochs", "1", "--eval-every", "0", *MODEL])
        require("4 of 6 vertices labelled" in made.stdout, "takes -100 or -1 for a class", made)
        for warning in ("all 4 labels are of class 1", "no vertex is in part valid of the split: train 2, valid 0, test 3",
                        "all 6 vertices have the same 2 features"):
            require(len(re.findall(f"^warning      {warning}", made.stdout, re.M)) == 1, f"does not say '{warning}' once", made)
            require(len(re.findall(f"warn.*{warning}", trained.stderr)) == 1, f"does not say '{warning}' once", trained)


def main():
    jobs = [(1, (partitions, name)) for name in GRAPHS] + [(1, (trainings, name)) for name in GRAPHS]
    jobs += [(3, (partitions, "cancelling")), (3, (trainings, "negative")), (2, (data,)), (1, (data,))]
    jobs += [(1, (self_loops,)), (1, (batches,)), (2, (products,)), (2, (links,))]
    return attempt_all(jobs)


if __name__ == "__main__":
    sys.exit(main())
