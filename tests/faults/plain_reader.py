# SPDX-License-Identifier: Apache-2.0
"""Reads a small graph from any format that Orthant takes, with nothing but Python: a second opinion on its readers.

Written from the documentation of the formats (src/graph/README.md, src/graph/read/open_graph.hpp, OGB, NumPy, MatrixMarket),
not from the readers. Whatever is not a graph by these rules is a ValueError.
"""

import dataclasses
import json
import math
import os
import re

from plain_formats import Archive, array_of, count_of, finite, integers, lines_of, natural, number, only, read_bytes, require, table, without_names


@dataclasses.dataclass
class Graph:
    num_vertices: int = 0
    is_symmetric_input: bool = False  # both directions of every edge are meant, whatever the options say
    edges: list = dataclasses.field(default_factory=list)  # (source, target, weight), as listed
    is_weighted: bool = False
    features: list = None  # rows of {column: value}
    num_features: int = 0
    labels: list = None  # a class or -1 each, or rows of 1, 0, -1, or of targets or None
    has_targets: bool = False
    num_classes: int = 0
    split: list = None  # three sets

    def entries(self, is_directed):
        """{(source, target): weight} after OGB's and PyG's rules: reverses added, repeats once, their weights summed."""
        result = {}
        for source, target, weight in self.edges:
            result[source, target] = result.get((source, target), 0) + weight
            if source != target and (self.is_symmetric_input or not is_directed):
                result[target, source] = result.get((target, source), 0) + weight
        return result if self.is_weighted else dict.fromkeys(result, 1)


class Reader:
    def __init__(self):
        self.graph = Graph()
        self.vertex_counts = []
        self.edge_counts = []
        self.meta = {}

    def add_edges(self, pairs, weights=None):
        require(weights is None or len(weights) == len(pairs), "weights and edges")
        self.graph.is_weighted = weights is not None
        self.graph.edges = [(source, target, finite(weight)) for (source, target), weight in
                            zip(pairs, weights if weights is not None else [1] * len(pairs))]

    def add_edge_array(self, array):
        _, shape, values = array
        require(len(shape) == 2 and shape[0] == 2, "shape of edge_index")
        integers(array)
        return list(zip(values[:shape[1]], values[shape[1]:]))

    def add_dense(self, rows):
        self.graph.num_features = len(rows[0]) if rows else 0
        self.graph.features = [{j: finite(value) for j, value in enumerate(row)} for row in rows]
        self.vertex_counts.append(len(rows))

    def add_dense_array(self, array):
        _, shape, values = array
        require(len(shape) == 2, "shape of x")
        width = shape[1]
        self.add_dense([values[i * width:(i + 1) * width] for i in range(shape[0])])
        self.graph.num_features = width

    def add_sparse(self, indptr, indices, data, shape):
        pointers, columns, extents = integers(indptr), integers(indices), integers(shape)
        require(len(extents) == 2 and min(extents) >= 0, "x_shape")
        rows, width = extents
        require(all(len(array[1]) == 1 for array in (indptr, indices, data)), "one axis each")
        require(len(pointers) == rows + 1 and pointers[0] == 0 and pointers[-1] == len(columns), "x_indptr")
        require(pointers == sorted(pointers) and len(columns) == len(data[2]), "x_indptr, x_data")
        self.graph.num_features = width
        self.graph.features = []
        for begin, end in zip(pointers, pointers[1:]):
            row = columns[begin:end]
            require(len(set(row)) == len(row) and all(0 <= column < width for column in row), "x_indices")
            self.graph.features.append({column: finite(value) for column, value in zip(row, data[2][begin:end])})
        self.vertex_counts.append(rows)

    def add_labels(self, rows):
        self.vertex_counts.append(len(rows))
        width = len(rows[0]) if rows else 1
        require(width > 0, "labels without columns")
        if width > 1:
            require(all(math.isnan(value) or value in (0, 1, -1, -100) for row in rows for value in row), "labels")
            self.graph.labels = [[-1 if math.isnan(value) else max(-1, int(value)) for value in row] for row in rows]
            self.graph.num_classes = width
            return
        values = [-1.0 if isinstance(row[0], float) and math.isnan(row[0]) else row[0] for row in rows]
        require(all(value == value // 1 and (value >= -1 or value == -100) for value in values), "labels")
        self.graph.labels = [max(-1, int(value)) for value in values]
        self.graph.num_classes = max(self.graph.labels, default=-1) + 1

    def add_label_array(self, array):
        kind, shape, values = array
        require(len(shape) in (1, 2), "shape of labels")
        width = shape[1] if len(shape) == 2 else 1
        require(width > 0, "labels without columns")
        if kind[1] == "f" and any(math.isfinite(value) and value != value // 1 for value in values):  # targets of regression
            require("num_classes" not in self.meta or self.meta["num_classes"] == 0, "classes")
            require(not any(map(math.isinf, values)), "targets")
            self.vertex_counts.append(shape[0])
            self.graph.labels = [[None if math.isnan(value) else value for value in values[i * width:(i + 1) * width]] for i in range(shape[0])]
            self.graph.num_classes, self.graph.has_targets = width, True
            return
        self.add_labels([values[i * width:(i + 1) * width] for i in range(shape[0])])

    def finish(self):
        graph, meta = self.graph, self.meta
        for key, counts in (("num_nodes", self.vertex_counts), ("num_edge_lines", self.edge_counts)):
            if key in meta:
                require(type(meta[key]) is int, f"{key} of meta.json")
                counts.append(meta[key])
        require(type(meta.get("name", "")) is str and type(meta.get("splits", {})) is dict, "meta.json")
        ids = [end for source, target, _ in graph.edges for end in (source, target)]
        require(ids, "no edges")
        if not self.vertex_counts:
            self.vertex_counts.append(max(ids) + 1)
        require(len(set(self.vertex_counts)) == 1, f"counts of vertices {self.vertex_counts}")
        require(set(self.edge_counts) <= {len(graph.edges)}, f"counts of edges {self.edge_counts}")
        graph.num_vertices = self.vertex_counts[0]
        require(0 <= min(ids) and max(ids) < graph.num_vertices, "ids")
        if graph.labels is not None and not graph.has_targets:
            if not meta.get("num_classes") and graph.labels and isinstance(graph.labels[0], int):
                numbers = sorted({label for label in graph.labels if label >= 0})
                if numbers and numbers[-1] >= 10 and 2 * len(numbers) < numbers[-1] + 1:  # names of classes
                    graph.labels = [numbers.index(label) if label >= 0 else -1 for label in graph.labels]
                    graph.num_classes = len(numbers)
            if "num_classes" in meta:
                require(type(meta["num_classes"]) is int and graph.num_classes <= meta["num_classes"], "num_classes")
                is_multi = graph.labels and isinstance(graph.labels[0], list)
                require(not is_multi or graph.num_classes == meta["num_classes"], "num_classes")
                graph.num_classes = meta["num_classes"]
            require(graph.num_classes > 0, "no labels")
        for part in graph.split or []:
            require(all(0 <= vertex < graph.num_vertices for vertex in part), "split")
        if graph.num_features == 0:
            graph.features = None
        return graph


def exists(path):
    """Whether there is such an entry; one that leads nowhere is a mistake."""
    require(not os.path.islink(path) or os.path.exists(path), f"{path} leads nowhere")
    require(not os.path.isdir(path), f"{path} is a folder")
    return os.path.exists(path)


def find_text(folder, name):
    for path in (os.path.join(folder, name + ".gz"), os.path.join(folder, name)):
        if exists(path):
            return path
    return None


def read_file(path):
    with open(path, "rb") as file:
        return array_of(file.read())


def read_edge_list(reader, path):
    rows = lines_of(path, comments="#%")
    if rows and len(rows[0]) >= 2 and all(re.match(r'[A-Za-z"_]', word) for word in rows[0]):
        rows = rows[1:]
    require(rows and len(rows[0]) in (2, 3), "columns")
    only(rows, len(rows[0]))
    pairs = [(natural(row[0]), natural(row[1])) for row in rows]
    reader.add_edges(pairs, [number(row[2]) for row in rows] if len(rows[0]) == 3 else None)


def read_matrix_market(reader, path):
    text = read_bytes(path).decode("latin-1")
    words = text.split("\n", 1)[0].lower().split()
    require(words[:3] == ["%%matrixmarket", "matrix", "coordinate"] and len(words) == 5, "banner")
    field, symmetry = words[3:]
    require(field in ("pattern", "real", "integer", "double") and symmetry in ("general", "symmetric"), "banner")
    head, *rows = lines_of(path, comments="%")
    rows_, columns, entries = (natural(word) for word in only([head], 3)[0])
    require(rows_ == columns, "not square")
    only(rows, 2 if field == "pattern" else 3)
    if field == "integer":
        require(all(re.fullmatch(r"[+-]?\d+", row[2]) for row in rows), "integers")
    reader.graph.is_symmetric_input = symmetry == "symmetric"
    reader.vertex_counts.append(rows_)
    reader.edge_counts.append(entries)
    reader.add_edges([(natural(row[0]) - 1, natural(row[1]) - 1) for row in rows],
                     None if field == "pattern" else [number(row[2]) for row in rows])


def read_raw(reader, raw):
    """OGB's raw/: csv or npz."""
    edges = find_text(raw, "edge.csv")
    features = find_text(raw, "node-feat.csv")
    labels = find_text(raw, "node-label.csv")
    for name, counts in (("num-node-list.csv", reader.vertex_counts), ("num-edge-list.csv", reader.edge_counts)):
        path = find_text(raw, name)
        if path is not None:
            counts.append(count_of(path))
    if edges is not None:
        weights = find_text(raw, "edge-weight.csv")
        pairs = [(natural(row[0]), natural(row[1])) for row in only(without_names(lines_of(edges), 2), 2)]
        reader.add_edges(pairs, [row[0] for row in only(table(weights), 1)] if weights else None)
    else:
        archive = Archive(os.path.join(raw, "data.npz"))
        for member, counts in (("num_nodes_list.npy", reader.vertex_counts), ("num_edges_list.npy", reader.edge_counts)):
            if member in archive:
                counts += integers(archive.array(member))
                require(len(archive.array(member)[2]) == 1, "one graph")
        reader.add_edges(reader.add_edge_array(archive.array("edge_index.npy")))
        if features is None and "node_feat.npy" in archive:
            reader.add_dense_array(archive.array("node_feat.npy"))
    if features is not None:
        reader.add_dense(table(features))
    if labels is not None:
        rows = table(labels)
        require(rows, "no labels")
        reader.add_labels(rows)
    elif exists(os.path.join(raw, "node-label.npz")):
        reader.add_label_array(Archive(os.path.join(raw, "node-label.npz")).array("node_label.npy"))


def read_dgl(reader, path):
    """NAME_graph.npz, a SciPy matrix in coordinates, and NAME_data.npz beside it, if it is there."""
    graph = Archive(path)
    shape, rows, columns = (graph.array(f"{member}.npy") for member in ("shape", "row", "col"))
    require(len(shape[1]) == 1 and len(shape[2]) == 2 and integers(shape)[0] == integers(shape)[1], "not square")
    require(len(rows[1]) == len(columns[1]) == 1 and len(rows[2]) == len(columns[2]), "row and col")
    reader.vertex_counts.append(shape[2][0])
    reader.add_edges(list(zip(integers(rows), integers(columns))))
    data = path[:-len("_graph.npz")] + "_data.npz"
    if not exists(data):
        return
    archive = Archive(data)
    reader.add_dense_array(archive.array("feature.npy"))
    reader.add_label_array(archive.array("label.npy"))
    types = archive.array("node_types.npy")
    require(len(types[1]) == 1 and set(integers(types)) <= {0, 1, 2, 3}, "node_types")
    reader.vertex_counts.append(len(types[2]))
    reader.graph.split = [{vertex for vertex, type_ in enumerate(types[2]) if type_ == part} for part in (1, 2, 3)]


def read_npy_attributes(reader, folder):
    def at(name):
        return os.path.join(folder, name)
    if reader.graph.features is None:
        if exists(at("x.npy")):
            reader.add_dense_array(read_file(at("x.npy")))
        elif exists(at("x_indptr.npy")):
            reader.add_sparse(*(read_file(at(f"x_{part}.npy")) for part in ("indptr", "indices", "data", "shape")))
    for name in ("labels.npy", "y.npy"):
        if reader.graph.labels is None and exists(at(name)):
            reader.add_label_array(read_file(at(name)))
    if reader.graph.split is None and exists(at("train_idx.npy")):
        reader.graph.split = [set(integers(read_file(at(f"{part}_idx.npy")))) for part in ("train", "valid", "test")]
    elif reader.graph.split is None and exists(at("train_mask.npy")):
        reader.graph.split = [read_mask(reader, read_file(at(f"{part}_mask.npy"))) for part in ("train", "val", "test")]


def read_mask(reader, array):
    kind, shape, values = array
    require(len(shape) == 1 or len(shape) == 2 and shape[1] == 1, "a mask of one split")
    require(kind[1] in "biu" and set(values) <= {0, 1}, "a mask")
    reader.vertex_counts.append(shape[0])
    return {vertex for vertex, value in enumerate(values) if value}


def read_graph(path):
    """The graph in the file or folder `path`. ValueError or OSError where it is none."""
    reader = Reader()
    if not os.path.isdir(path):
        is_matrix = ".mtx" in os.path.basename(path) or read_bytes(path)[:14].lower() == b"%%matrixmarket"
        (read_matrix_market if is_matrix else read_edge_list)(reader, path)
        return reader.finish()
    if exists(os.path.join(path, "meta.json")):
        with open(os.path.join(path, "meta.json"), encoding="utf-8") as file:
            reader.meta = json.load(file)
        require(isinstance(reader.meta, dict), "meta.json")
    matrices = [name for name in os.listdir(path) if name.endswith("_graph.npz")]
    if os.path.isdir(os.path.join(path, "raw")):
        read_raw(reader, os.path.join(path, "raw"))
    elif matrices:
        require(len(matrices) == 1, "several graphs")
        read_dgl(reader, os.path.join(path, matrices[0]))
    else:
        edges = read_file(os.path.join(path, "edge_index.npy"))
        pairs, values = reader.add_edge_array(edges), None
        weights, attributes = (os.path.join(path, name) for name in ("edge_weight.npy", "edge_attr.npy"))
        if exists(weights):
            values = read_file(weights)[2]
        elif exists(attributes):
            _, shape, values = read_file(attributes)
            if len(shape) == 2 and shape[0] == len(pairs) and shape[1] != 1:
                values = None  # features of edges
        reader.add_edges(pairs, values)
    splits = os.path.join(path, "split")
    names = sorted(os.listdir(splits)) if os.path.isdir(splits) else []
    if names:
        chosen = next((name for name in reader.meta.get("splits", {}) if name in names), names[0])
        folder = os.path.join(splits, chosen)
        reader.graph.split = []
        for part in ("train", "valid", "test"):
            found = find_text(folder, part + ".csv")
            require(found is not None, f"no {part}")
            reader.graph.split.append({natural(row[0]) for row in only(without_names(lines_of(found)), 1)})
    read_npy_attributes(reader, path)
    return reader.finish()
