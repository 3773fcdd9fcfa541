#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files of graphs whose vertices have types: typed_inputs.py PROGRAM

The same graph in the layouts of PyTorch Geometric, and of OGB as text and in binary form, gives the same store, byte by byte from 1 and 3
ranks. That of DGL has names; predictions name vertices by type and name.
"""

import csv
import gzip
import json
import os
import random
import re
import shutil
import struct
import sys
import tempfile
import zipfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from program import attempt_all, expect_mistake, expect_success, require, run  # noqa: E402
from relational_training import flat, write_npy  # noqa: E402

TYPES = {"author": (17, 0), "field": (5, 3), "inst": (4, 0), "paper": (23, 5)}  # vertices and features
RELATIONS = {("author", "affiliated_with", "inst"): 25, ("author", "writes", "paper"): 40, ("paper", "cites", "paper"): 35,
             ("paper", "has_topic", "field"): 30}
NUM_CLASSES = 4
OFFSETS = {name: sum(count for other, (count, _) in TYPES.items() if other < name) for name in TYPES}


class Graph:
    """Features of papers are fp32 numbers, as are the others if they are `short`."""

    def __init__(self, short=False):
        draw = random.Random("types")
        self.edges = {}
        for (source, name, target), count in RELATIONS.items():
            ends = [(draw.randrange(TYPES[source][0]), draw.randrange(TYPES[target][0])) for _ in range(count)]
            self.edges[source, name, target] = [(TYPES[source][0] - 1, TYPES[target][0] - 1), *ends]
        self.features = {name: [[draw.uniform(-1, 1) for _ in range(width)] for _ in range(count)]
                         for name, (count, width) in TYPES.items() if width}
        as_fp32 = lambda x: struct.unpack("f", struct.pack("f", x))[0]
        self.letters = {name: "f" if short or name == "paper" else "d" for name in self.features}
        for name, letter in self.letters.items():
            if letter == "f":
                self.features[name] = [[as_fp32(x) for x in row] for row in self.features[name]]
        self.labels = [v % NUM_CLASSES for v in range(TYPES["paper"][0])]
        order = draw.sample(range(len(self.labels)), len(self.labels))
        self.split = {"train": sorted(order[:12]), "valid": sorted(order[12:17]), "test": sorted(order[17:])}

    def relations(self):
        """With those that --add-inverse makes: (name, edges by ids of the whole graph)."""
        found = []
        for (source, name, target), edges in self.edges.items():
            ids = [(OFFSETS[source] + s, OFFSETS[target] + t) for s, t in edges]
            back = [(t, s) for s, t in ids]
            found.append((f"{source}__{name}__{target}", ids + back if source == target else ids))
        for (source, name, target), edges in self.edges.items():
            if source != target:
                found.append((f"{target}__rev_{name}__{source}", [(OFFSETS[target] + t, OFFSETS[source] + s) for s, t in edges]))
        return found

    def write_arrays(self, folder):
        """As PyTorch Geometric's HeteroData has them; one relation in the form of IGB, [edges, 2]."""
        for (source, name, target), edges in self.edges.items():
            path = os.path.join(folder, f"{source}__{name}__{target}")
            os.makedirs(path)
            rows = name == "writes"
            write_npy(os.path.join(path, "edge_index.npy"), (len(edges), 2) if rows else (2, len(edges)), "q",
                      flat([list(edge) for edge in edges] if rows else [list(ends) for ends in zip(*edges)]))
        for name, rows in self.features.items():
            os.makedirs(os.path.join(folder, name))
            write_npy(os.path.join(folder, name, "x.npy"), (len(rows), len(rows[0])), self.letters[name], flat(rows))
        write_npy(os.path.join(folder, "paper", "y.npy"), (len(self.labels),), "q", self.labels)
        for part, vertices in self.split.items():
            write_npy(os.path.join(folder, "paper", {"valid": "val"}.get(part, part) + "_mask.npy"), (len(self.labels),), "?",
                      [v in vertices for v in range(len(self.labels))])

    def write_names(self, folder):
        """Names of papers and fields, for the layout of PyTorch Geometric."""
        for name in ("field", "paper"):
            names = [text.encode() for text in self.names(name)]
            text = f"{{'descr': '|S8', 'fortran_order': False, 'shape': ({len(names)},), }}".ljust(117) + "\n"
            with open(os.path.join(folder, name, "names.npy"), "wb") as file:
                file.write(b"\x93NUMPY\x01\0" + struct.pack("<H", len(text)) + text.encode() + b"".join(struct.pack("8s", name) for name in names))

    def names(self, kind):
        return [f"{v % 7}, {v}" for v in range(TYPES[kind][0])]

    def write_archives(self, folder):
        """As OGB has them in binary form."""
        raw = os.path.join(folder, "raw")
        self.write_lists(folder)
        os.makedirs(raw)

        def write(name, members):
            with zipfile.ZipFile(os.path.join(raw, name + ".npz"), "w", zipfile.ZIP_DEFLATED if name == "node_feat_dict" else 0) as archive:
                for member, (shape, letter, values) in members.items():
                    write_npy(os.path.join(raw, "array"), shape, letter, values)
                    archive.write(os.path.join(raw, "array"), member + ".npy")
            os.remove(os.path.join(raw, "array"))
        keys = {"___".join(names): edges for names, edges in self.edges.items()}
        write("num_nodes_dict", {name: ((1,), "q", [count]) for name, (count, _) in TYPES.items()})
        write("num_edges_dict", {key: ((1,), "q", [len(edges)]) for key, edges in keys.items()})
        write("edge_index_dict", {key: ((2, len(edges)), "q", flat([list(ends) for ends in zip(*edges)])) for key, edges in keys.items()})
        write("node_feat_dict", {name: ((len(rows), len(rows[0])), "f", flat(rows)) for name, rows in self.features.items()})
        write("node-label", {"paper": ((len(self.labels), 1), "q", self.labels)})

    def write_csv(self, folder):
        """As DGL's CSVDataset has them."""
        os.makedirs(folder)
        node_data, edge_data = ["node_data:"], ["edge_data:"]

        def write(name, lines):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.writelines(line + "\n" for line in lines)
        ids = {name: self.names(name) if name in ("field", "paper") else [str(v) for v in range(count)] for name, (count, _) in TYPES.items()}
        for name in reversed(TYPES):
            lines = ["node_id" + ",feat" * (name in self.features) + ",label,train_mask,val_mask,test_mask" * (name == "paper")]
            for v, text in enumerate(ids[name]):
                feat = f',"{", ".join(map(repr, self.features[name][v]))}"' if name in self.features else ""
                masks = [str(v in self.split[part]) for part in ("train", "valid", "test")]
                lines.append(f'"{text}"{feat}' + (",".join(["", str(self.labels[v]), *masks]) if name == "paper" else ""))
            write(name + ".csv", lines)
            node_data += [f"- file_name: {name}.csv", f"  ntype: {name}"]
        for (source, name, target), edges in self.edges.items():
            write(name + ".csv", ["src_id,dst_id", *(f'"{ids[source][s]}","{ids[target][t]}"' for s, t in edges)])
            edge_data += [f"- file_name: {name}.csv", f"  etype: [{source}, {name}, {target}]"]
        write("meta.yaml", ["dataset_name: graph", *node_data, *edge_data])

    def write_tables(self, folder):
        """As OGB has them."""
        def write(path, lines):
            path = os.path.join(folder, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with gzip.open(path, "wt", encoding="utf-8") as file:
                file.writelines(line + "\n" for line in lines)
        write("raw/num-node-dict.csv.gz", [",".join(TYPES), ",".join(str(count) for count, _ in TYPES.values())])
        write("raw/triplet-type-list.csv.gz", [",".join(names) for names in self.edges])
        for names, edges in self.edges.items():
            write(f"raw/relations/{'___'.join(names)}/edge.csv.gz", [f"{s},{t}" for s, t in edges])
        for name, rows in self.features.items():
            write(f"raw/node-feat/{name}/node-feat.csv.gz", [",".join(map(repr, row)) for row in rows])
        write("raw/node-label/paper/node-label.csv.gz", [str(label) for label in self.labels])
        self.write_lists(folder)

    def write_lists(self, folder):
        os.makedirs(os.path.join(folder, "split", "npy", "paper"))
        for part, vertices in self.split.items():
            with gzip.open(os.path.join(folder, "split", "npy", "paper", part + ".csv.gz"), "wt", encoding="utf-8") as file:
                file.writelines(f"{v}\n" for v in vertices)


def content(path):
    with open(path, "rb") as file:
        return file.read()


def stores(_):
    graph, exact = Graph(short=True), Graph()
    with tempfile.TemporaryDirectory() as scratch:
        path = lambda name: os.path.join(scratch, name)
        graph.write_arrays(path("arrays/graph"))
        graph.write_tables(path("tables/graph"))
        graph.write_archives(path("archives/graph"))
        exact.write_arrays(path("exact/graph"))
        with open(path("arrays/graph/paper/notes.txt"), "w", encoding="utf-8") as file:
            file.write("not an array")
        for more in ([], ["--add-inverse"]):
            for layout in ("arrays", "tables", "archives", "exact"):
                for ranks in (1, 3):
                    done = expect_success(ranks, ["partition", "--input", path(layout + "/graph"), "-o", path(f"{layout}{ranks}.h5"), "--force", *more])
                require(layout != "arrays" or "not used     paper/notes.txt\n" in done.stdout, "does not tell of a file that is not used", done)
                done = expect_success(2, ["info", "--verify", path(f"{layout}1.h5")])
                require(content(path(f"{layout}1.h5")) == content(path(f"{layout}3.h5")), f"{layout}: stores differ", done)
                types = re.findall(r"^ +(\S+) +(\d+) vertices, (\d+ features|a trained table)$", done.stdout, re.M)
                wanted = [(name, str(count), f"{width} features" if width else "a trained table") for name, (count, width) in TYPES.items()]
                require(types == wanted, f"{layout}: types {types}", done)
                found = re.findall(r"^ +\d+  (\S+) +(\d+) entries$", done.stdout, re.M)
                relations = graph.relations() if more else [("__".join(names), edges) for names, edges in graph.edges.items()]
                require(found == [(name, str(len(set(edges)))) for name, edges in relations], f"{layout}: relations {found}", done)
            require(content(path("arrays1.h5")) == content(path("tables1.h5")), "layouts differ", done)
            require(content(path("arrays1.h5")) == content(path("archives1.h5")), "layouts differ", done)


def names_are_kept(_):
    """Of a CSVDataset, and of names.npy: in the store from 1 and 3 ranks, and in predictions."""
    graph = Graph(short=True)
    with tempfile.TemporaryDirectory() as scratch:
        path = lambda name: os.path.join(scratch, name)
        graph.write_csv(path("csv/graph"))
        graph.write_arrays(path("arrays/graph"))
        found = {}
        for layout in ("csv", "arrays", "named"):
            if layout == "named":
                os.rename(path("arrays"), path("named"))
                graph.write_names(path("named/graph"))
            for ranks in (1, 3):
                expect_success(ranks, ["partition", "--input", path(layout + "/graph"), "-o", path(f"{layout}{ranks}.h5"), "--add-inverse"])
            done = expect_success(1, ["info", "--verify", path(f"{layout}1.h5")])
            require(content(path(f"{layout}1.h5")) == content(path(f"{layout}3.h5")), f"{layout}: stores differ", done)
            require(("names       of all vertices" in done.stdout) == (layout != "arrays"), "info does not tell of names", done)
            expect_success(1, ["train", "--graph", path(layout + "1.h5"), "--model", "rgcn", "--epochs", "2", "--hidden", "4", "--dropout", "0",
                               "--save-weights", path(layout + ".w")])
            expect_success(2, ["evaluate", "--graph", path(layout + "1.h5"), "--weights", path(layout + ".w"), "--predictions", path(layout + ".csv")])
            with open(path(layout + ".csv"), encoding="utf-8") as file:
                found[layout] = list(csv.reader(file))
        require(found["csv"] == found["named"], "names.npy gives other predictions than a CSVDataset", done)
        rows = [["vertex", "type", "name", "class"]]
        for kind, (count, _) in TYPES.items():
            names = graph.names(kind) if kind in ("field", "paper") else [str(v) for v in range(count)]
            rows += [[str(OFFSETS[kind] + v), kind, name] for v, name in enumerate(names)]
        require([row[:3] for row in found["csv"]] == [row[:3] for row in rows], f"vertices {found['csv']}", done)
        require([row[1] for row in found["arrays"]] == [row[1] for row in rows], "predictions without types", done)
        require(found["arrays"][-1][2] == str(TYPES["paper"][0] - 1), "no id within the type", done)


def mistakes(ranks):
    graph = Graph()
    with tempfile.TemporaryDirectory() as scratch:
        path = lambda name: os.path.join(scratch, name)

        def changed(name, change):
            graph.write_arrays(path(name))
            change(path(name))
            return ["partition", "--input", path(name), "-o", path("none.h5")]

        def lie(folder):
            write_npy(os.path.join(folder, "paper__has_topic__field", "edge_index.npy"), (2, 2), "q", [0, 1, 4, 5])

        def label(folder):
            write_npy(os.path.join(folder, "field", "y.npy"), (5,), "q", [0, 1, 2, 3, 0])

        def shape(folder):
            write_npy(os.path.join(folder, "paper__has_topic__field", "edge_index.npy"), (3, 3), "q", [0] * 9)

        def name(folder):
            os.rename(os.path.join(folder, "paper__cites__paper"), os.path.join(folder, "paper__cites__paper__too"))

        def outside(folder):
            with open(os.path.join(folder, "meta.json"), "w", encoding="utf-8") as file:
                json.dump({"num_nodes": {"../paper": 3}}, file)

        def integer(folder):
            with open(os.path.join(folder, "meta.json"), "w", encoding="utf-8") as file:
                json.dump({"num_nodes": 49}, file)

        def count(folder):
            with open(os.path.join(folder, "meta.json"), "w", encoding="utf-8") as file:
                json.dump({"num_nodes": {"paper": 22}}, file)

        def empty(folder):
            for names in graph.edges:
                shutil.rmtree(os.path.join(folder, "__".join(names)))
        for arguments, pattern in (
                (changed("label", label), r"vertices of the types field and paper have labels"),
                (changed("shape", shape), r"edge_index\.npy.*\[2, edges\] or \[edges, 2\]"),
                (changed("integer", integer), r"meta\.json: num_nodes must have a number for each type of vertices"),
                (changed("count", count), r"meta\.json says 22 vertices, but .*paper/x\.npy says 23"),
                (changed("name", name), r"paper__cites__paper__too has edges, but its name is not SOURCE__NAME__TARGET"),
                (changed("outside", outside), r"meta\.json: a type of vertices has a name that is not that of a folder"),
                (changed("names", lambda _: None) + ["--names"], r"a graph of several types, whose vertices have numbers: leave out --names"),
                (changed("empty", empty) + ["--format", "typed"], r"has no edges of a graph of several types; looked for"),
                (changed("fine", lambda _: None) + ["--random-features", "3"], r"a graph of several types: leave out --random-features")):
            expect_mistake(ranks, arguments, pattern)
        done = run(ranks, changed("lie", lie))
        require(done.returncode == 2 and "an edge from paper 1 to field 5, but there are 5 vertices of the type field" in done.stderr,
                "takes an id beyond its type", done)


if __name__ == "__main__":
    sys.exit(attempt_all([(1, (stores,)), (1, (names_are_kept,)), (3, (mistakes,))]))
