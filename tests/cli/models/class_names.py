#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names of classes: texts in y.npy, numbers with gaps, and classes.csv: class_names.py PROGRAM FOLDER_OF_KARATE

A training equals the one on a store whose labels are the places of the names. Predictions carry the names.
"""

import csv
import os
import re
import sys
import tempfile

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", folder) for folder in (".", os.path.join("..", "faults"))]
import hdf5  # noqa: E402
from plain_gcn import table  # noqa: E402
from predictions import check, flat, near, read_npy, write_npy  # noqa: E402
from program import PROGRAM, attempt_all, expect_mistake, expect_success, require, run  # noqa: E402
from regression import events, features  # noqa: E402

KARATE = sys.argv[2]
COUNT = 34
FEW = ["--layers", "2", "--hidden", "6", "--epochs", "5", "--eval-every", "1", "--compute-dtype", "fp64"]
EDGES = table(KARATE, "raw/edge.csv", int)
NAMES = ["grün", "red", "sky, \"blue\""]  # ascending


def label(v):
    return -1 if v % 9 == 4 else (v * v + v // 3) % 3


def write_texts(path, texts):
    width = max(map(len, texts))
    text = f"{{'descr': '<U{width}', 'fortran_order': False, 'shape': ({len(texts)},), }}"
    text += " " * ((-len(text) - 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode())
        file.write(b"".join(each.ljust(width, "\0").encode("utf-32-le") for each in texts))


def write_folder(scratch, name, y=None):
    """`y`: numbers, or a list of texts."""
    folder = os.path.join(scratch, name)
    os.makedirs(folder, exist_ok=True)
    write_npy(os.path.join(folder, "edge_index.npy"), (2, len(EDGES)), "q", [edge[end] for end in (0, 1) for edge in EDGES])
    write_npy(os.path.join(folder, "x.npy"), (COUNT, 5), "f", features())
    if y and isinstance(y[0], str):
        write_texts(os.path.join(folder, "y.npy"), y)
    else:
        write_npy(os.path.join(folder, "y.npy"), (COUNT,), "d" if any(isinstance(x, float) for x in y) else "q", y)
    for part, file in enumerate(("train", "val", "test")):
        write_npy(os.path.join(folder, f"{file}_mask.npy"), (COUNT,), "b", [int((3 * v + v // 4) % 3 == part) for v in range(COUNT)])
    return folder


def losses(ranks, store, scratch, *more):
    metrics = os.path.join(scratch, "m.jsonl")
    expect_success(ranks, ["train", "--graph", store, *FEW, "--metrics", metrics, *more])
    return flat([epoch["loss"], epoch["test_acc"], epoch["val_macro_f1"]] for epoch in events(metrics, "epoch"))


def require_names(ranks, scratch, folder, names, note):
    """The store holds these names, and trains as one of numbers."""
    store, plain, weights = (os.path.join(scratch, name) for name in ("named.h5", "plain.h5", "w.h5"))
    done = expect_success(ranks, ["partition", "--input", folder, "-o", store, "--force"])
    require(note in done.stdout, f"has no note '{note}'", done)
    require(f"{len(names)} classes" in done.stdout and "named " + ", ".join(names) in done.stdout, "does not name the classes", done)
    expect_success(ranks, ["info", store, "--verify"])
    told = expect_success(1, ["info", store])
    require(re.search(rf"^classes +{re.escape(', '.join(names))}$", told.stdout, re.M) is not None, "info does not name the classes", told)
    expect_success(1, ["partition", "--input", write_folder(scratch, "plain", [label(v) for v in range(COUNT)]), "-o", plain, "--force"])
    near(losses(ranks, store, scratch, "--save-weights", weights, "--force"), losses(1, plain, scratch), "losses")
    paths = [os.path.join(scratch, f"p.{ending}") for ending in ("csv", "npy", "h5")]
    for path in paths:
        expect_success(ranks, ["evaluate", "--graph", store, "--weights", weights, "--predictions", path, "--force"])
    with open(paths[0], newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    classes = read_npy(paths[1])[1]
    check(rows[0] == ["vertex", "class"] and [row[1] for row in rows[1:]] == [names[c] for c in classes], f"predicts {rows[:4]}")
    library = hdf5.library_of(PROGRAM)
    if library is not None:
        with hdf5.File(hdf5.Library(library), paths[2]) as file:
            text = bytes(value % 256 for value in file.read("/class_names/text").values)
            ends = file.read("/class_names/offsets").values
            check([text[a:b].decode() for a, b in zip(ends, ends[1:])] == names, "names in the .h5 file")
    for form in ("npy", "ogb"):
        back, again = os.path.join(scratch, f"back-{form}"), os.path.join(scratch, "again.h5")
        expect_success(ranks, ["export", store, "-o", back, "--format", form, "--force"])
        expect_success(ranks, ["partition", "--input", back, "-o", again, "--force"])
        told = expect_success(1, ["info", again])
        require(re.search(rf"^classes +{re.escape(', '.join(names))}$", told.stdout, re.M) is not None, "loses the names", told)
        near(losses(ranks, again, scratch), losses(1, plain, scratch), f"losses of {form}")


def texts(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_folder(scratch, "texts", [NAMES[label(v)] if label(v) >= 0 else "" for v in range(COUNT)])
        require_names(ranks, scratch, folder, NAMES, "y.npy has texts, which are the names of 3 classes")


def gaps(ranks):
    for none, kind in ((-1, int), (-100, int), (float("nan"), float)):
        with tempfile.TemporaryDirectory() as scratch:
            folder = write_folder(scratch, "gaps", [kind((10, 20, 170)[label(v)]) if label(v) >= 0 else none for v in range(COUNT)])
            require_names(ranks, scratch, folder, ["10", "20", "170"], "labels are numbers with gaps, up to 170: they are the names of 3 classes")


def one_gap(ranks):
    """Most numbers have a vertex: they stay numbers, as benchmarks have it."""
    with tempfile.TemporaryDirectory() as scratch:
        store = os.path.join(scratch, "g.h5")
        done = expect_success(ranks, ["partition", "--input", write_folder(scratch, "g", [(0, 1, 3)[v % 3] for v in range(COUNT)]), "-o", store])
        require("4 classes, 34 of 34 vertices labelled; no vertex has class 2" in done.stdout, "has other classes", done)


def mistakes(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        output = os.path.join(scratch, "g.h5")
        folder = write_folder(scratch, "g", [label(v) for v in range(COUNT)])
        for text, pattern in [("id,class\n0,a\n2,b\n", r'classes\.csv: line 3 is not "1,NAME"'), ("id,class\n0,a\n", r"classes\.csv names 1 classes, but there are 3"),
                              ("id,class\n", r"classes\.csv names 0 classes")]:
            with open(os.path.join(folder, "classes.csv"), "w", encoding="utf-8") as file:
                file.write(text)
            expect_mistake(ranks, ["partition", "--input", folder, "-o", output], pattern)
        os.remove(os.path.join(folder, "classes.csv"))
        write_texts(os.path.join(folder, "y.npy"), ["", "\0"] * (COUNT // 2))
        expect_mistake(ranks, ["partition", "--input", folder, "-o", output], "no vertex has a label")
        write_texts(os.path.join(folder, "x.npy"), ["a"] * COUNT)
        expect_mistake(ranks, ["partition", "--input", folder, "-o", output], r"x\.npy: type '<U1' cannot be read")
        os.remove(os.path.join(folder, "x.npy"))
        write_npy(os.path.join(folder, "y.npy"), (COUNT,), "q", [-5] * COUNT)
        done = run(ranks, ["partition", "--input", folder, "-o", output])
        require(done.returncode == 2 and "y.npy: label -5 at element 0" in done.stderr, "accepts a negative label", done)


if __name__ == "__main__":
    jobs = [(ranks, (case,)) for case in (texts, gaps) for ranks in (1, 3)] + [(2, (one_gap,)), (1, (mistakes,)), (3, (mistakes,))]
    sys.exit(attempt_all(jobs))
