#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""evaluate --predictions, --probabilities, --embeddings: predictions.py PROGRAM FOLDER_OF_KARATE

What the files hold is compared with a GCN in plain Python from the same weights (plain_gcn.py), vertex by vertex, on
grids of 1, 2 and 4 ranks and in both schedules; classes to the byte, numbers to 1e-10.
"""

import ast
import itertools
import json
import math
import os
import struct
import sys
import tempfile

from plain_gcn import layer_outputs, softmax, table, write_safetensors
from program import PROGRAM, Failure, attempt_all, expect_mistake, expect_success, require

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "faults"))
import hdf5  # noqa: E402

KARATE = sys.argv[2]
PLACES = {1: [("1x1x1x1", "pmm3d"), ("1x1x1x1", "rows")], 2: [("1x2x1x1", "pmm3d"), ("1x1x2x1", "pmm3d"), ("1x1x1x2", "rows")],
          4: [("1x2x2x1", "pmm3d"), ("1x1x2x2", "pmm3d"), ("1x2x1x2", "rows")]}
LETTERS = {"<i4": "i", "<i8": "q", "|i1": "b", "<f4": "f", "<f8": "d"}


def check(condition, what):
    if not condition:
        raise Failure(what)


def read_npy(path):
    """Shape and flat values."""
    with open(path, "rb") as file:
        check(file.read(8) == b"\x93NUMPY\x01\0", f"{path} is no .npy file")
        header = ast.literal_eval(file.read(struct.unpack("<H", file.read(2))[0]).decode())
        letter, data = LETTERS[header["descr"]], file.read()
    check(not header["fortran_order"], "is in Fortran order")
    values = struct.unpack(f"<{math.prod(header['shape'])}{letter}", data)
    return header["shape"], list(values)


def write_npy(path, shape, letter, values):
    descr = {letter: descr for descr, letter in LETTERS.items()}
    text = f"{{'descr': '{descr[letter]}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * ((-len(text) - 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\0" + struct.pack("<H", len(text)) + text.encode())
        file.write(struct.pack(f"<{len(values)}{letter}", *values))


def read_csv(path):
    """Names of the columns, and the lines as numbers."""
    with open(path, encoding="utf-8") as file:
        names, *lines = file.read().splitlines()
    return names.split(","), [[float(word) for word in line.split(",")] for line in lines]


def write_folder(folder, edges, **arrays):
    """A graph as a folder of .npy files. `arrays`: shape, letter and values by name."""
    os.makedirs(folder, exist_ok=True)
    write_npy(os.path.join(folder, "edge_index.npy"), (2, len(edges)), "q", [edge[end] for end in (0, 1) for edge in edges])
    for name, array in arrays.items():
        write_npy(os.path.join(folder, f"{name}.npy"), *array)
    return folder


def events(path, *kinds):
    """The lines of these kinds of a file of metrics, which is removed."""
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    os.remove(path)
    return [line for line in lines if line["event"] in kinds]


def content_of(path):
    with open(path, "rb") as file:
        return file.read()


def near(found, expected, what):
    check(len(found) == len(expected), f"{what}: {len(found)} numbers, not {len(expected)}")
    differences = [abs(a - b) for a, b in zip(found, expected)]
    check(all(difference <= 1e-10 for difference in differences), f"{what}: differs by {differences}")


def flat(rows):
    return list(itertools.chain.from_iterable(rows))


def weights_of(widths):
    """Of a GCN, by a formula, as a state dict: numbers of both signs that no other layer has."""
    tensors = {}
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        matrix = [[math.sin(1 + 7 * layer + 3 * i + 5 * j + i * j) for j in range(inputs)] for i in range(outputs)]
        tensors[f"convs.{layer}.lin.weight"] = matrix
        tensors[f"convs.{layer}.bias"] = [math.cos(layer + i) / 4 for i in range(outputs)]
    return tensors


def import_weights(tensors, scratch):
    path, weights = os.path.join(scratch, "w.safetensors"), os.path.join(scratch, "w.h5")
    stored = {}
    for name, numbers in tensors.items():
        is_matrix = isinstance(numbers[0], list)
        values = flat(numbers) if is_matrix else numbers
        shape = [len(numbers), len(numbers[0])] if is_matrix else [len(numbers)]
        stored[name] = ("F64", shape, struct.pack(f"<{len(values)}d", *values))
    write_safetensors(path, stored)
    expect_success(1, ["import-weights", path, "-o", weights, "--force"])
    return weights


class Evaluations:
    """Runs of evaluate on every grid and in both schedules."""

    def __init__(self, ranks, scratch, store, weights):
        self.ranks, self.scratch = ranks, scratch
        self.command = ["evaluate", "--graph", store, "--weights", weights, "--compute-dtype", "fp64"]
        self.places = PLACES[ranks]

    def files(self, name, *arguments):
        """The file of each run."""
        for place, (grid, schedule) in enumerate(self.places):
            path = os.path.join(self.scratch, f"{place}-{name}")
            expect_success(self.ranks, [*self.command, "--grid", grid, "--schedule", schedule, "--predictions", path, *arguments])
            yield path
            os.remove(path)


def one_class(ranks):
    features, edges = table(KARATE, "raw/node-feat.csv"), table(KARATE, "raw/edge.csv", int)
    tensors = weights_of([len(features[0]), 7, 5, 2])
    gaps = sorted(row[0] - row[1] for row in layer_outputs(features, edges, tensors)[-1])
    tensors["convs.2.bias"][1] += (gaps[16] + gaps[17]) / 2  # half of the vertices are of each class
    hidden, deeper, logits = layer_outputs(features, edges, tensors)
    classes = [max(range(2), key=lambda j, row=row: (row[j], -j)) for row in logits]
    probabilities = [softmax(row) for row in logits]
    check(sum(classes) == 17, f"classes {classes}")
    with tempfile.TemporaryDirectory() as scratch:
        store = os.path.join(scratch, "g.h5")
        expect_success(1, ["partition", "--input", KARATE, "-o", store])
        runs = Evaluations(ranks, scratch, store, import_weights(tensors, scratch))
        plain = struct.pack("<34i", *classes)
        for path in runs.files("classes.npy"):
            check(read_npy(path) == ((34,), classes) and content_of(path).endswith(plain), "classes in .npy")
        for path in runs.files("probabilities.npy", "--probabilities"):
            shape, found = read_npy(path)
            check(shape == (34, 2), f"shape {shape}")
            near(found, flat(probabilities), "probabilities in .npy")
        for layer, expected in enumerate((hidden, deeper, logits)):
            for path in runs.files("embeddings.npy", "--embeddings", str(layer)):
                shape, found = read_npy(path)
                check(shape == (34, len(expected[0])), f"shape {shape}")
                near(found, flat(expected), f"output of layer {layer}")
        for path in runs.files("all.csv", "--probabilities", "--embeddings", "1"):
            names, lines = read_csv(path)
            check(names == ["vertex", "class", "p0", "p1", "e0", "e1", "e2", "e3", "e4"], f"columns {names}")
            check([line[0] for line in lines] == list(range(34)), "vertices are not in order")
            check([line[1] for line in lines] == classes, "classes in .csv")
            near(flat(line[2:4] for line in lines), flat(probabilities), "probabilities in .csv")
            near(flat(line[4:] for line in lines), flat(deeper), "embeddings in .csv")
        bytes_of_first = None
        for path in runs.files("classes.csv"):
            bytes_of_first = bytes_of_first or content_of(path)
            check(content_of(path) == bytes_of_first == b"vertex,class\n" + b"".join(b"%d,%d\n" % pair for pair in enumerate(classes)),
                  "classes in .csv")
        library = hdf5.Library(hdf5.library_of(PROGRAM))
        for path in runs.files("all.h5", "--probabilities", "--embeddings", "0"):
            with hdf5.File(library, path) as file:
                check(file.names() == ["/embeddings", "/predictions", "/probabilities"], f"arrays {file.names()}")
                check(file.read("/predictions") == hdf5.Array("i", (34,), classes), "classes in .h5")
                check(file.read("/probabilities")[:2] == ("d", (34, 2)), "probabilities in .h5")
                near(file.read("/probabilities").values, flat(probabilities), "probabilities in .h5")
                near(file.read("/embeddings").values, flat(hidden), "embeddings in .h5")


def several_classes(ranks):
    """Ids from 1, so that 0 is a vertex that nobody has, and others without a neighbor: all have a row."""
    count, classes = 41, 3
    features = [[math.cos(1 + 2 * v + 3 * j) for j in range(6)] for v in range(count)]
    edges = [(v, (3 * v) % 29 + 1) for v in range(1, 30)] + [(v, v % 29 + 1) for v in range(1, 30)]
    tensors = weights_of([6, 5, classes])
    logits = layer_outputs(features, edges, tensors)[-1]
    with tempfile.TemporaryDirectory() as scratch:
        graph, store = os.path.join(scratch, "graph"), os.path.join(scratch, "g.h5")
        os.mkdir(graph)
        write_npy(os.path.join(graph, "edge_index.npy"), (2, len(edges)), "q", [u for u, _ in edges] + [v for _, v in edges])
        write_npy(os.path.join(graph, "x.npy"), (count, 6), "d", flat(features))
        write_npy(os.path.join(graph, "labels.npy"), (count, classes), "b", [(v + j) % 2 for v in range(count) for j in range(classes)])
        expect_success(1, ["partition", "--input", graph, "-o", store, "--random-split", "0.5,0.25,0.25"])
        runs = Evaluations(ranks, scratch, store, import_weights(tensors, scratch))
        indicators = [1 if z > 0 else 0 for z in flat(logits)]
        probabilities = [1 / (1 + math.exp(-z)) for z in flat(logits)]
        for path in runs.files("classes.npy"):
            check(read_npy(path) == ((count, classes), indicators), "classes in .npy")
        for path in runs.files("p.npy", "--probabilities"):
            near(read_npy(path)[1], probabilities, "probabilities in .npy")
        for path in runs.files("all.csv", "--probabilities"):
            names, lines = read_csv(path)
            check(names == ["vertex", "c0", "c1", "c2", "p0", "p1", "p2"], f"columns {names}")
            check(flat(line[1:4] for line in lines) == indicators, "classes in .csv")
            near(flat(line[4:] for line in lines), probabilities, "probabilities in .csv")
        library = hdf5.Library(hdf5.library_of(PROGRAM))
        for path in runs.files("all.h5"):
            with hdf5.File(library, path) as file:
                check(file.names() == ["/predictions"], f"arrays {file.names()}")
                check(file.read("/predictions") == hdf5.Array("b", (count, classes), indicators), "classes in .h5")


def every_part(ranks):
    """With projection, norm, residuals and a head: the head of what the last layer leaves gives the logits."""
    with tempfile.TemporaryDirectory() as scratch:
        store, weights, tensors = (os.path.join(scratch, name) for name in ("g.h5", "w.h5", "w.safetensors"))
        expect_success(1, ["partition", "--input", KARATE, "-o", store])
        expect_success(1, ["train", "--graph", store, "--layers", "2", "--hidden", "6", "--epochs", "3", "--norm", "rms", "--residual",
                           "--input-projection", "--head", "--compute-dtype", "fp64", "--save-weights", weights])
        library = hdf5.Library(hdf5.library_of(PROGRAM))
        with hdf5.File(library, weights) as file:
            head, bias = file.read("/parameters/head.weight"), file.read("/parameters/head.bias").values
        runs = Evaluations(ranks, scratch, store, weights)
        logits = [read_npy(path)[1] for path in runs.files("logits.npy", "--embeddings", "2")]
        for found in logits:
            near(found, logits[0], "logits")
        width, num_classes = head.shape
        for path in runs.files("hidden.npy", "--embeddings", "1"):
            shape, found = read_npy(path)
            check(shape == (34, width), f"shape {shape}")
            products = [bias[j] + sum(found[v * width + i] * head.values[i * num_classes + j] for i in range(width))
                        for v in range(34) for j in range(num_classes)]
            near(products, logits[0], "head of the embeddings")


def many_slices(ranks):
    """Wide embeddings travel a slice of the vertices at a time; the file is that of another number of ranks, with other slices."""
    count, width = 5000, 1024
    with tempfile.TemporaryDirectory() as scratch:
        graph, store, weights, plain, wide, other = (os.path.join(scratch, name) for name in
                                                     ("g", "g.h5", "w.h5", "p.npy", "wide.h5", "other.npy"))
        expect_success(1, ["generate", "--kind", "sbm", "--vertices", str(count), "--features", "4", "--classes", "5", "-o", graph])
        expect_success(1, ["partition", "--input", graph, "-o", store])
        expect_success(1, ["train", "--graph", store, "--layers", "2", "--hidden", str(width), "--epochs", "2", "--eval-every", "0",
                           "--save-weights", weights])
        command = ["evaluate", "--graph", store, "--weights", weights, "--compute-dtype", "fp64", "--predictions"]
        expect_success(1, [*command, plain])
        expect_success(1, [*command, other, "--embeddings", "0"])
        expect_success(ranks, [*command, wide, "--embeddings", "0", "--probabilities"])
        with hdf5.File(hdf5.Library(hdf5.library_of(PROGRAM)), wide) as file:
            classes, rows = file.read("/predictions").values, file.read("/embeddings")
            sums = [sum(five) for five in zip(*[iter(file.read("/probabilities").values)] * 5)]
        check(classes == read_npy(plain)[1] and len(set(classes)) > 1, "classes of slices")
        near(sums, [1] * count, "sums of probabilities")
        check(rows.shape == (count, width), f"shape {rows.shape}")
        near(rows.values, read_npy(other)[1], "embeddings of slices")


def mistakes(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        store = os.path.join(scratch, "g.h5")
        expect_success(1, ["partition", "--input", KARATE, "-o", store])
        weights = import_weights(weights_of([34, 7, 2]), scratch)
        command = ["evaluate", "--graph", store, "--weights", weights]
        def to(name):
            return ["--predictions", os.path.join(scratch, name)]
        for arguments, pattern in (
                (to("p"), r"/p: the name says the format; let it end in \.h5, \.npy or \.csv"), (to("p.txt"), r"\.h5, \.npy or \.csv"),
                (to("p.npy") + ["--probabilities", "--embeddings", "0"], r"holds one array; leave out --probabilities or --embeddings"),
                (["--probabilities"], r"--probabilities goes into the file of --predictions"),
                (["--embeddings", "0"], r"--embeddings goes into the file of --predictions"),
                (to("p.npy") + ["--embeddings", "2"], r"--embeddings 2: .*w\.h5 has layers 0 to 1$"),
                (to("p.npy") + ["--embeddings", "-1"], r"--embeddings"),
                (to("none/p.csv"), r"cannot open the predictions file .*no folder"), (to("none/p.npy"), r"no folder"),
                (to("p.h5") + ["--schedule", "columns"], r"'columns' is none of auto, pmm3d, rows")):
            expect_mistake(ranks, command + arguments, pattern)
        check(sorted(os.listdir(scratch)) == ["g.h5", "w.h5", "w.safetensors"], f"left {os.listdir(scratch)}")


if __name__ == "__main__":
    raise SystemExit(attempt_all([(ranks, (part,)) for ranks in (4, 2, 1) for part in (one_class, several_classes, every_part)] +
                                 [(1, (mistakes,)), (2, (mistakes,)), (2, (many_slices,))]))
