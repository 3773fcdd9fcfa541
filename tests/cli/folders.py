#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Folders of arrays and tables as users have them: folders.py PROGRAM

For six layouts, which files `partition` says that it reads, which it leaves, and what it says of the graph; the same on 1 and
3 ranks. What it reads is compared with what was written, through `export`. Then mistakes in such folders.
"""

import gzip
import os
import re
import shutil
import struct
import tempfile

from program import attempt_all, expect_mistake, expect_success, require, run

COUNT = 10
EDGES = [(v, (v + 1) % COUNT) for v in range(COUNT)] + [(1, 0), (2, 2), (0, 1)]
CLASSES = [v % 4 if v % 4 != 2 else 0 for v in range(COUNT - 1)] + [-1]  # nobody has class 2
FEATURES = [[v + 0.25 * j for j in range(3)] for v in range(COUNT)]
SPLIT = {"train": [0, 3, 5, 8], "valid": [1, 2], "test": [4, 6, 7]}


def npy(kind, shape, values):
    letter = {"<i8": "q", "<f4": "f", "|b1": "?", "|u1": "B"}[kind]
    header = repr({"descr": kind, "fortran_order": False, "shape": tuple(shape)})
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(values)}{letter}", *values)


def lists(rows):
    return [value for row in rows for value in row]


def lines(rows, head=None):
    return "".join(line + "\n" for line in ([head] if head else []) + [",".join(map(str, row)) for row in rows]).encode()


EDGE_INDEX = npy("<i8", (2, len(EDGES)), [u for u, _ in EDGES] + [v for _, v in EDGES])
X = npy("<f4", (COUNT, 3), lists(FEATURES))
Y = npy("<i8", (COUNT,), CLASSES)


def mask(part, kind="|b1"):
    return npy(kind, (COUNT,), [int(v in SPLIT[part]) for v in range(COUNT)])


def ids(part):
    return npy("<i8", (len(SPLIT[part]),), SPLIT[part])


def text_lists(head=None):
    return {f"split/time/{part}.csv": lines([[v] for v in SPLIT[part]], head) for part in SPLIT}


RAW = {"raw/edge.csv": lines(EDGES, "source,target"), "raw/num-node-list.csv": lines([[COUNT]]),
       "raw/num-edge-list.csv": lines([[len(EDGES)]])}
# name: files, those that are read, those that are not, words of the notes
LAYOUTS = {
    "pyg": ({"x.npy": X, "y.npy": Y, "edge_index.npy": EDGE_INDEX, "edge_attr.npy": npy("<f4", (len(EDGES), 2), [1.0] * (2 * len(EDGES))),
             "train_mask.npy": mask("train"), "val_mask.npy": mask("valid"), "test_mask.npy": mask("test", "|u1"),
             "pos.npy": npy("<f4", (COUNT, 2), [0.0] * (2 * COUNT)), "processed/data.pt": b"pickle"},
            "edge_index.npy, x.npy, y.npy, train_mask.npy, val_mask.npy, test_mask.npy", "edge_attr.npy, pos.npy, processed/",
            ["edge_attr.npy has 2 columns and is not used"]),
    "pyg_idx": ({"x.npy": X, "y.npy": npy("<i8", (COUNT, 1), CLASSES), "edge_index.npy": EDGE_INDEX,
                 "edge_weight.npy": npy("<f4", (len(EDGES),), [0.5] * len(EDGES)), "edge_attr.npy": b"not read",
                 "train_idx.npy": ids("train"), "val_idx.npy": ids("valid"), "test_idx.npy": ids("test"), "train_mask.npy": b"not read"},
                "edge_index.npy, edge_weight.npy, x.npy, y.npy, train_idx.npy, val_idx.npy, test_idx.npy", "edge_attr.npy, train_mask.npy", []),
    "dgl": ({"feat.npy": X, "label.npy": Y, "edge_index.npy": EDGE_INDEX, "edge_attr.npy": npy("<f4", (len(EDGES), 1), [2.0] * len(EDGES)),
             "train_mask.npy": mask("train"), "val_mask.npy": mask("valid"), "test_mask.npy": mask("test"), "graph.bin": b"", ".cache": b""},
            "edge_index.npy, edge_attr.npy, feat.npy, label.npy, train_mask.npy, val_mask.npy, test_mask.npy", "graph.bin", []),
    "ogb": (RAW | {"raw/node-feat.csv": lines(FEATURES, "f0,f1,f2"), "raw/node-label.csv": lines([[c if c >= 0 else "nan"] for c in CLASSES], "label"),
                   "raw/node_year.csv.gz": b"", "mapping/README.md": b"", "RELEASE_v1.txt": b"", "split/random/train.csv": b"",
                   "meta.json": b'{"name": "pets", "splits": {"time": {}, "random": {}}}'} | text_lists("node"),
            "raw/edge.csv, raw/num-node-list.csv, raw/num-edge-list.csv, raw/node-feat.csv, raw/node-label.csv, split/time/train.csv, "
            "split/time/valid.csv, split/time/test.csv, meta.json", "RELEASE_v1.txt, mapping/, raw/node_year.csv.gz, split/random/",
            [f"{name} begins with a line of names" for name in ("edge.csv", "node-feat.csv", "node-label.csv", "train.csv", "valid.csv", "test.csv")]),
    "ogb_npy": (RAW | {"npy/x.npy": X, "npy/labels.npy": Y, "npy/edge_index.npy": b"not read", "README": b""} | text_lists(),
                "raw/edge.csv, raw/num-node-list.csv, raw/num-edge-list.csv, npy/x.npy, npy/labels.npy, split/time/train.csv, "
                "split/time/valid.csv, split/time/test.csv", "README, npy/edge_index.npy", ["edge.csv begins with a line of names"]),
    "lists": ({"friends.txt": lines(EDGES, "from,to"), "x.npy": X, "y.npy": Y, "notes.md": b""} | {f"{p}_mask.npy": mask(p) for p in SPLIT},
              "friends.txt, x.npy, y.npy, train_mask.npy, valid_mask.npy, test_mask.npy", "notes.md", ["friends.txt begins with a line of names"]),
}


def write(scratch, name, files):
    folder = os.path.join(scratch, name)
    for path, data in files.items():
        os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
        with open(os.path.join(folder, path), "wb") as file:
            file.write(data)
    return folder


def told(text, word):
    return [line[len(word):].strip() for line in text.splitlines() if line.startswith(word + " ")]


def layout(ranks, name):
    files, used, unused, notes = LAYOUTS[name]
    with tempfile.TemporaryDirectory() as scratch:
        store, back = os.path.join(scratch, "g.h5"), os.path.join(scratch, "back")
        done = expect_success(ranks, ["partition", "--input", write(scratch, name, files), "-o", store])
        text = done.stdout
        require(told(text, "read") == [used], f"reads {told(text, 'read')}", done)
        found = [sorted(line.split(", ")) for line in told(text, "not used")]
        require(found == [sorted(unused.split(", "))], f"does not use {found}", done)
        require(len(told(text, "note")) == len(notes) and all(note in text for note in notes), "notes", done)
        require(told(text, "edges") == ["13 read, 2 repeats merged (an edge and its reverse are one), 1 self loop"], "edges", done)
        is_weighted = any(word in used for word in ("edge_weight", "edge_attr"))
        require(("weights of repeated edges are added" in text) == is_weighted, "weights of repeats", done)
        require(told(text, "vertices") == ["10, 0 isolated"], "vertices", done)
        require(told(text, "features") == ["3 per vertex"], "features", done)
        require(told(text, "labels") == ["4 classes, 9 of 10 vertices labelled; no vertex has class 2"], "labels", done)
        require(re.fullmatch(r"\w+: train 4, valid 2, test 3; 1 vertices in none", told(text, "split")[0]) is not None, "split", done)
        total, parts = re.search(r"^seconds +([\d.]+): (.*);", text, re.M).groups()
        require(abs(sum(float(part.rsplit(" ", 1)[1]) for part in parts.split(", ")) - float(total)) < 1e-6, "seconds do not add up", done)
        expect_success(ranks, ["export", store, "-o", back, "--format", "ogb"])
        require(read_back(back) == (FEATURES, CLASSES, SPLIT), f"comes back as {read_back(back)}", done)


def read_back(folder):
    def rows(name, kind):
        path = next(os.path.join(root, file) for root, _, files in os.walk(folder) for file in files if file in (name, name + ".gz"))
        with (gzip.open if path.endswith(".gz") else open)(path, "rt") as file:
            return [[kind(word) for word in line.split(",")] for line in file.read().split()]
    labels = [-1 if row[0] != row[0] else int(row[0]) for row in rows("node-label.csv", float)]
    return rows("node-feat.csv", float), labels, {part: sorted(lists(rows(part + ".csv", int))) for part in SPLIT}


def ids_from_1(ranks):
    """A phantom vertex 0 is told; a graph whose vertex 0 is connected is not suspected."""
    with tempfile.TemporaryDirectory() as scratch:
        for name, shift in (("from1", 1), ("from0", 0)):
            graph = os.path.join(scratch, name + ".csv")
            with open(graph, "wb") as file:
                file.write(lines([(u + shift, v + shift) for u, v in EDGES], "source,target"))
            done = expect_success(ranks, ["partition", "--input", graph, "-o", os.path.join(scratch, name + ".h5")])
            require(("if ids of edges begin at 1" in done.stdout) == (shift == 1), "warns wrongly", done)
            require(told(done.stdout, "vertices") == [f"{COUNT + shift}, {shift} isolated"], "isolated", done)
            require(told(done.stdout, "labels") == ["none"] and told(done.stdout, "split") == ["none"], "labels", done)
            require(told(done.stdout, "note") == [name + ".csv begins with a line of names, which is ignored"], "note", done)
            require(told(done.stdout, "read") == [name + ".csv"], "reads", done)
        dropped = expect_success(ranks, ["partition", "--input", graph, "-o", os.path.join(scratch, "d.h5"), "--self-loops", "drop",
                                         "--directed"])
        require(told(dropped.stdout, "edges") == ["13 read, 1 repeat merged, 0 self loops (1 dropped)"], "dropped loops", dropped)


def recommendation(ranks):
    """What --stats ends with is what train takes."""
    with tempfile.TemporaryDirectory() as scratch:
        graph, store = os.path.join(scratch, "graph"), os.path.join(scratch, "g.h5")
        expect_success(1, ["generate", "--kind", "sbm", "--vertices", "600", "--edges", "6000", "--features", "16", "--classes", "4", "-o", graph])
        done = expect_success(ranks, ["partition", "--input", graph, "-o", store, "--stats"])
        found = dict(re.findall(r"^ +(\d+) ranks?: +--grid (\S+ --schedule \S+)$", done.stdout.split("recommended", 1)[1], re.M))
        require({"1", "2", "4", "8", "16", "64"} <= set(found), f"recommends {found}", done)
        trained = expect_success(ranks, ["train", "--graph", store, "--epochs", "1"])
        grid, schedule = re.search(r"^grid +(\S+) .*schedule (\S+)$", trained.stdout, re.M).groups()
        require(found[str(ranks)] == f"{grid} --schedule {schedule}", f"recommends {found[str(ranks)]}", trained)
        empty = expect_success(ranks, ["partition", "--input", os.path.join(graph), "-o", store, "--force"])
        require("recommended" not in empty.stdout, "recommends unasked", empty)


def expect_late_mistake(scratch, files, pattern):
    """One that is found when the split is read, behind the first lines."""
    folder = write(scratch, "late", files)
    done = run(3, ["partition", "--input", folder, "-o", os.path.join(scratch, "g.h5")])
    require(done.returncode == 2 and re.search(pattern, done.stderr) is not None, f"does not say {pattern}", done)
    shutil.rmtree(folder)


def wrong(_):
    base = LAYOUTS["pyg"][0]
    cases = [
        ({"train_mask.npy": npy("|b1", (COUNT, 0), [])}, r"train_mask\.npy: shape \[10, 0\]; \[vertices\], or \[vertices, splits\]"),
        ({"val_mask.npy": npy("|b1", (COUNT - 1,), [0] * (COUNT - 1))}, r"val_mask\.npy says 9"),
        ({"test_mask.npy": None}, r"has a part of a split but no test_mask\.npy: a split needs train, valid \(or val\) and test"),
        ({"train_mask.npy": None, "test_mask.npy": None}, r"has a part of a split but no train_mask\.npy"),
        ({"edge_index.npy": npy("<i8", (len(EDGES), 2), lists(EDGES))}, r"edge_index\.npy: shape \[13, 2\]; \[2, edges\]"),
        ({"edge_index.npy": npy("<f4", (2, len(EDGES)), [0.0] * (2 * len(EDGES)))}, r"type '<f4'; vertex ids are integers"),
        ({"x.npy": npy("<f4", (COUNT,), [0.0] * COUNT)}, r"x\.npy: shape \[10\]; \[vertices, features\]"),
        ({"y.npy": npy("<i8", (COUNT + 1,), [0] * (COUNT + 1))}, r"x\.npy says 10 vertices, but .*y\.npy says 11"),
        ({"edge_attr.npy": npy("<f4", (5,), [0.0] * 5)}, r"edge_attr\.npy: shape \[5\]; \[13\], one weight an edge"),
    ]
    with tempfile.TemporaryDirectory() as scratch:
        for place, (changes, pattern) in enumerate(cases):
            files = {name: data for name, data in (base | changes).items() if data is not None}
            for ranks in (1, 3):
                expect_mistake(ranks, ["partition", "--input", write(scratch, str(place), files), "-o", os.path.join(scratch, "g.h5")], pattern)
        # What lies in the lists themselves is found when they are read, behind the first lines.
        for changes, pattern in (({"train_mask.npy": npy("|u1", (COUNT,), [7] * COUNT)}, r"train_mask\.npy: 7 at element 0 .* neither 0 nor 1"),
                                 ({"val_mask.npy": mask("train")}, r"the split 'npy': vertex 0 is in train_mask and val_mask; a vertex may be in one part only"),
                                 ({"test_mask.npy": npy("|b1", (COUNT,), [0] * 8 + [1, 0])}, r"vertex 8 is in train_mask and test_mask"),
                                 ({f"{p}_mask.npy": npy("|b1", (COUNT,), [0] * 9 + [1]) for p in ("train", "val", "test")},
                                  r"vertex 9 is in train_mask and val_mask and test_mask")):
            expect_late_mistake(scratch, base | changes, pattern)
        indices = LAYOUTS["pyg_idx"][0]
        expect_late_mistake(scratch, indices | {"val_idx.npy": ids("test")}, r"vertex 4 is in val_idx and test_idx")
        expect_late_mistake(scratch, indices | {"val_idx.npy": npy("<i8", (3,), [7, 2, 2])}, r"the split 'npy': val_idx lists vertex 2 twice")
        for ending, pack in (("", bytes), (".gz", gzip.compress)):
            tables = {name + ending: pack(data) for name, data in (RAW | text_lists() | {"split/time/test.csv": b"7\n5\n"}).items()}
            expect_late_mistake(scratch, tables, r"the split 'time': vertex 5 is in train and test; ")


if __name__ == "__main__":
    raise SystemExit(attempt_all([(ranks, (layout, name)) for name in LAYOUTS for ranks in (1, 3)] +
                                 [(ranks, (part,)) for part in (ids_from_1, recommendation) for ranks in (1, 2, 4)] + [(1, (wrong,))]))
