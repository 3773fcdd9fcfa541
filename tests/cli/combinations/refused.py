#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table in the section "What is refused" of docs/graph_models.md: refused.py PROGRAM GRAPH_MODELS_MD

One command for each row, in the same order. It must be refused with the row, its reason and what to give instead.
"""

import os
import re
import sys
import tempfile

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path += [FOLDER, os.path.join(FOLDER, "..")]
from predictions import write_npy  # noqa: E402
from program import attempt_all, expect_mistake, expect_success, require, run  # noqa: E402
from refusals import MOST_REFUSALS, documented_rows  # noqa: E402

KARATE = ["train", "--dataset", "karate", "--epochs", "1"]
BATCHES = [*KARATE, "--mode", "minibatch", "--batch", "9"]


def store_of_sparse_features(scratch):
    folder, store, vertices = os.path.join(scratch, "sparse"), os.path.join(scratch, "sparse.h5"), list(range(8))
    os.mkdir(folder)
    for name, shape, kind, numbers in (("edge_index", (2, 8), "q", vertices + vertices[1:] + vertices[:1]),
                                       ("x_indptr", (9,), "q", [2 * v for v in range(9)]),
                                       ("x_indices", (16,), "q", [c for v in vertices for c in (v % 5, 5)]),
                                       ("x_data", (16,), "f", [1] * 16), ("x_shape", (2,), "q", [8, 6])):
        write_npy(os.path.join(folder, f"{name}.npy"), shape, kind, numbers)
    expect_success(1, ["partition", "--input", folder, "-o", store, "--random-labels", "3", "--random-split", "0.5,0.25,0.25"])
    return store


def commands(scratch):
    links = os.path.join(scratch, "links.h5")
    expect_success(1, ["partition", "--generate", "sbm", "--vertices", "60", "--edges", "300", "--features", "6", "--classes", "3", "-o", links,
                       "--edge-split", "0.1,0.1"])
    of_links = ["train", "--graph", links, "--task", "links"]
    return [
        [*BATCHES, "--normalize", "none", "--batch-edges", "renormalize"],
        [*BATCHES, "--sampler", "degree", "--batch-train-fraction", "0.5"],
        [*KARATE, "--self-loops", "keep"],
        [*KARATE, "--model", "gat", "--hidden", "9"],
        ["plan", "--vertices", "9", "--nonzeros", "20", "--model", "gcnii", "--widths", "4-5-6-2"],
        ["train", "--graph", store_of_sparse_features(scratch), "--trainable-features"],
        [*KARATE, "--compute-dtype", "fp64", "--comm-dtype", "bf16"],
        [*KARATE, "--model", "sage", "--operand-dtype", "fp16"],
        [*of_links, "--comm-dtype", "bf16"],
        [*of_links, "--mode", "minibatch"],
    ]


def each_row_is_a_refusal(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        lines = commands(scratch)
        rows = documented_rows(sys.argv[2])
        done = run(1, ["--version"])
        require(len(rows) == len(lines) <= MOST_REFUSALS, f"{len(rows)} rows for {len(lines)} commands", done)
        for words, (refused, reason) in zip(lines, rows):
            expect_mistake(ranks, words, rf"^{re.escape(refused)}: {re.escape(reason)}; .*(give|leave)")


if __name__ == "__main__":
    raise SystemExit(attempt_all([(ranks, (each_row_is_a_refusal,)) for ranks in (1, 3)]))
