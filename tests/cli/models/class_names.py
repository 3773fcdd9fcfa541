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
from predictions import check, events, flat, near, read_npy, write_folder, write_npy  # noqa: E402
from program import PROGRAM, attempt_all, expect_mistake, expect_success, require, run  # noqa: E402
from regression import features  # noqa: E402

KARATE = sys.argv[2]
COUNT = 34
FEW = ["--layers", "2", "--hidden", "6", "--epochs", "5", "--eval-every", "1", "--compute-dtype", "fp64"]
EDGES = table(KARATE, "raw/edge.csv", int)
NAMES = ["grün", "red", "sky, \"blue\""]  # ascending


def label(v):
    return -1 if v % 9 == 4 else (v * v + v // 3) % 3


def write_texts(path, texts, kind="<U"):
    """`kind`: "<U" characters, or "|S" bytes of UTF-8, for which a text may also be bytes."""
    encoded = [text if isinstance(text, bytes) else text.encode("utf-32-le" if kind == "<U" else "utf-8") for text in texts]
    size = max(map(len, encoded))
    width = size // 4 if kind == "<U" else size
    text = f"{{'descr': '{kind}{width}', 'fortran_order': False, 'shape': ({len(texts)},), }}"
    text += " " * ((-len(text) - 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode())
        file.write(b"".join(each.ljust(size, b"\0") for each in encoded))


def write_labels(scratch, name, y, kind="<U"):
    """`y`: numbers, or a list of texts."""
    masks = {f"{file}_mask": ((COUNT,), "b", [int((3 * v + v // 4) % 3 == part) for v in range(COUNT)])
             for part, file in enumerate(("train", "val", "test"))}
    folder = write_folder(os.path.join(scratch, name), EDGES, x=((COUNT, 5), "f", features()), **masks)
    if isinstance(y[0], str):
        write_texts(os.path.join(folder, "y.npy"), y, kind)
    else:
        write_npy(os.path.join(folder, "y.npy"), (COUNT,), "d" if any(isinstance(x, float) for x in y) else "q", y)
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
    expect_success(1, ["partition", "--input", write_labels(scratch, "plain", [label(v) for v in range(COUNT)]), "-o", plain, "--force"])
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
        for kind in ("<U", "|S"):
            folder = write_labels(scratch, "texts", [NAMES[label(v)] if label(v) >= 0 else "" for v in range(COUNT)], kind)
            require_names(ranks, scratch, folder, NAMES, "y.npy has texts, which are the names of 3 classes\n")
        with open(os.path.join(folder, "classes.csv"), "w", encoding="utf-8") as file:
            file.write("id,class\n0,a\n")
        require_names(ranks, scratch, folder, NAMES, "y.npy has texts, which are the names of 3 classes; classes.csv is not used")


def gaps(ranks):
    for none, kind in ((-1, int), (-100, int), (float("nan"), float)):
        with tempfile.TemporaryDirectory() as scratch:
            folder = write_labels(scratch, "gaps", [kind((10, 20, 170)[label(v)]) if label(v) >= 0 else none for v in range(COUNT)])
            require_names(ranks, scratch, folder, ["10", "20", "170"], "labels are numbers with gaps, up to 170: they are the names of 3 classes; "
                          "\"num_classes\": 171 in meta.json keeps them as numbers")


def numbers_that_stay(ranks):
    """Numbers with gaps in node-label.csv, in a CSVDataset, and in y.npy beside num_classes of meta.json."""
    numbers = [(10, 20, 30)[v % 3] for v in range(COUNT)]
    with tempfile.TemporaryDirectory() as scratch:
        store, meta, text = (os.path.join(scratch, name) for name in ("g.h5", "meta", "text"))
        write_labels(scratch, "meta", numbers)
        with open(os.path.join(meta, "meta.json"), "w", encoding="utf-8") as file:
            file.write('{"num_classes": 31}')
        os.makedirs(os.path.join(text, "raw"))
        data_set = os.path.join(scratch, "data_set")
        os.makedirs(data_set)
        for path, lines in ((os.path.join(text, "raw", "edge.csv"), [f"{u},{v}" for u, v in EDGES]),
                            (os.path.join(text, "raw", "node-label.csv"), map(str, numbers)),
                            (os.path.join(text, "raw", "num-node-list.csv"), [str(COUNT)]),
                            (os.path.join(text, "raw", "num-edge-list.csv"), [str(len(EDGES))]),
                            (os.path.join(data_set, "edges.csv"), ["src_id,dst_id", *(f"{u},{v}" for u, v in EDGES)]),
                            (os.path.join(data_set, "nodes.csv"), ["node_id,label", *(f"{v},{numbers[v]}" for v in range(COUNT))]),
                            (os.path.join(data_set, "meta.yaml"), ["dataset_name: d", "edge_data:", "- file_name: edges.csv", "node_data:",
                                                                   "- file_name: nodes.csv"])):
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in lines)
        for folder in (meta, text, data_set):
            done = expect_success(ranks, ["partition", "--input", folder, "-o", store, "--force"])
            require("31 classes, 34 of 34 vertices labelled" in done.stdout and "names" not in done.stdout, f"names the classes of {folder}", done)


def one_gap(ranks):
    """Most numbers have a vertex: they stay numbers, as benchmarks have it."""
    with tempfile.TemporaryDirectory() as scratch:
        store = os.path.join(scratch, "g.h5")
        done = expect_success(ranks, ["partition", "--input", write_labels(scratch, "g", [(0, 1, 3)[v % 3] for v in range(COUNT)]), "-o", store])
        require("4 classes, 34 of 34 vertices labelled; no vertex has class 2" in done.stdout, "has other classes", done)


def weights_know_their_labels(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        def store_of(name, y):
            path = os.path.join(scratch, name + ".h5")
            expect_success(ranks, ["partition", "--input", write_labels(scratch, name, y), "-o", path])
            return path
        named = store_of("named", [NAMES[label(v)] if label(v) >= 0 else "" for v in range(COUNT)])
        other = store_of("other", [("x", "y", "z")[v % 3] for v in range(COUNT)])
        plain = store_of("plain", [v % 3 for v in range(COUNT)])
        weights = os.path.join(scratch, "w.h5")
        expect_success(ranks, ["train", "--graph", named, *FEW, "--save-weights", weights])
        told = expect_success(1, ["info", weights])
        require(f"labels      single: {', '.join(NAMES)}\n" in told.stdout, "does not name the classes", told)
        expect_success(ranks, ["evaluate", "--graph", plain, "--weights", weights])
        expect_mistake(ranks, ["evaluate", "--graph", other, "--weights", weights],
                       rf"w\.h5 predicts the classes {', '.join(NAMES)}, but those of .*other\.h5 are x, y, z")
        write_npy(os.path.join(scratch, "other", "y.npy"), (COUNT, 3), "d", [v / 7 for v in range(3 * COUNT)])
        expect_success(ranks, ["partition", "--input", os.path.join(scratch, "other"), "-o", other, "--force"])
        expect_mistake(ranks, ["evaluate", "--graph", other, "--weights", weights], r"w\.h5 predicts labels of the kind single, but those of .*other\.h5 are real")


def mistakes(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        output = os.path.join(scratch, "g.h5")
        folder = write_labels(scratch, "g", [label(v) for v in range(COUNT)])
        for text, pattern in [("id,class\n0,a\n2,b\n", r'classes\.csv: line 3 is not "1,NAME"'), ("id,class\n0,a\n", r"classes\.csv names 1 classes, but there are 3"),
                              ("0,a\n1,b\n", r'classes\.csv: line 2 is not "0,NAME": the first line must be id,class, then one per class from 0'),
                              ('id,class\n0,"a\n', r"classes\.csv: a quote is open at the end of the file"),
                              ("id,class\n", r"classes\.csv names 0 classes")]:
            with open(os.path.join(folder, "classes.csv"), "w", encoding="utf-8") as file:
                file.write(text)
            expect_mistake(ranks, ["partition", "--input", folder, "-o", output], pattern)
        with open(os.path.join(folder, "classes.csv"), "w", encoding="utf-8") as file:
            file.write("id,class\n0,a\n1,b\n2,c\n\n\n")
        expect_success(ranks, ["partition", "--input", folder, "-o", output])
        os.remove(output)
        os.remove(os.path.join(folder, "classes.csv"))
        for bad in (b"\xfcber", b"\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80"):
            write_texts(os.path.join(folder, "y.npy"), ["a", "b", bad] + ["c"] * (COUNT - 3), "|S")
            expect_mistake(ranks, ["partition", "--input", folder, "-o", output], r"y\.npy: element 2 \(byte \d+\) is not valid Unicode")
        write_texts(os.path.join(folder, "y.npy"), ["", "\0"] * (COUNT // 2))
        expect_mistake(ranks, ["partition", "--input", folder, "-o", output], "no vertex has a label")
        write_texts(os.path.join(folder, "x.npy"), ["a"] * COUNT)
        expect_mistake(ranks, ["partition", "--input", folder, "-o", output], r"x\.npy: type '<U1' cannot be read")
        os.remove(os.path.join(folder, "x.npy"))
        write_npy(os.path.join(folder, "y.npy"), (COUNT,), "q", [-5] * COUNT)
        done = run(ranks, ["partition", "--input", folder, "-o", output])
        require(done.returncode == 2 and "y.npy: label -5 at element 0" in done.stderr, "accepts a negative label", done)


if __name__ == "__main__":
    jobs = [(ranks, (case,)) for case in (texts, gaps, numbers_that_stay, weights_know_their_labels) for ranks in (1, 3)] + [(2, (one_gap,)), (1, (mistakes,)), (3, (mistakes,))]
    sys.exit(attempt_all(jobs))
