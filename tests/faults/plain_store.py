#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a graph store with nothing but Python and HDF5, and counts what is in it: a second opinion on info --verify.

plain_store.py HDF5_LIBRARY STORE   prints the first thing that does not agree, or nothing

Written from src/graph/store/store_format.hpp. It is a program of its own, since HDF5 may fall over a damaged file.
"""

import json
import math
import struct
import sys
import zlib

import hdf5

CHUNK = 1024  # elements per checksum


def require(condition, what):
    if not condition:
        raise ValueError(what)


def checksums_of(array):
    """CRC-32 of every 1,024 elements of each row."""
    row = array.shape[-1] if array.shape else 1
    sums = []
    for begin in range(0, len(array.values), row or 1):
        for at in range(begin, begin + row, CHUNK):
            piece = array.values[at:min(at + CHUNK, begin + row)]
            sums.append(zlib.crc32(struct.pack(f"<{len(piece)}{array.kind}", *piece)))
    return sums


def tiles_of(arrays, group):
    """(tile row, tile column, begin, end) of each tile, as its tables say."""
    rows, offsets = arrays[group + "/tile_row_offsets"].values, arrays[group + "/tile_offsets"]
    width = offsets.shape[1]
    for i in range(offsets.shape[0]):
        for j in range(width - 1):
            begin, end = (rows[i] + offsets.values[i * width + j + k] for k in (0, 1))
            yield i, j, begin, end


def tile_checksum(arrays, group, begin, end):
    if not (isinstance(begin, int) and isinstance(end, int)):  # the table was changed to another type
        begin = end = 0
    entries = arrays[group + "/entries"].values[begin:end]
    total = zlib.crc32(struct.pack(f"<{len(entries)}I", *entries))
    if group + "/values" in arrays:
        values = arrays[group + "/values"].values[begin:end]
        total = zlib.crc32(struct.pack(f"<{len(values)}f", *values), total)
    return total


class Store:
    def __init__(self, library, path):
        with hdf5.File(library, path) as file:
            require(file.text("format") == "orthant graph store" and file.integer("version") == 1, "no store")
            text = file.text("facts")
            require(file.integer("facts_crc32") == zlib.crc32(text.encode()), "checksum of the facts")
            self.facts = json.loads(text)
            self.arrays = {name: file.read(name) for name in file.names()}
        facts = self.facts
        for key, value in facts.items():
            if key.startswith("num_") or key == "max_degree":
                require(type(value) is int and 0 <= value < 2**62, key)
            if key.startswith(("is_", "has_")):
                require(isinstance(value, bool), key)
        self.num_vertices = facts["num_vertices"]
        require(self.num_vertices > 0, "vertices")
        self.orders = ["p1", "p2"] if facts["permutation"] in ("double", "cluster") else ["p1"]
        require(facts["permutation"] in ("double", "cluster", "single", "none"), "permutation")
        require(facts["normalization"] in ("sym", "row", "none"), "normalization")

    def column(self, name, kinds, length):
        require(name in self.arrays, f"no {name}")
        array = self.arrays[name]
        require(array.kind in kinds and array.shape == (length,), f"{name} is {array.kind}{array.shape}")
        return array.values

    def check_sums(self):
        for name, array in self.arrays.items():
            if name.startswith("/checksums/"):
                twin = name[len("/checksums"):]
                require(twin in self.arrays, f"no {twin}")
                require(checksums_of(self.arrays[twin]) == array.values, f"checksums of {twin}")

    def matrix(self, group, num_rows, num_columns):
        """[(row, column, value)] of a tiled matrix."""
        arrays = self.arrays
        for leaf in ("entries", "tile_row_offsets", "tile_offsets", "tile_checksums"):
            require(f"{group}/{leaf}" in arrays, f"no {group}/{leaf}")
        sums, rows, offsets = (arrays[f"{group}/{leaf}"] for leaf in ("tile_checksums", "tile_row_offsets", "tile_offsets"))
        entries = arrays[group + "/entries"]
        values = arrays.get(group + "/values")
        require(len(sums.shape) == 2 and min(sums.shape) > 0, f"tiles of {group}")
        parts, across = sums.shape
        require(rows.shape == (parts + 1,) and offsets.shape == (parts, across + 1), f"tables of {group}")
        require(len(entries.shape) == 1 and entries.kind == "I", f"{group}/entries")
        require(values is None or (values.shape == entries.shape and values.kind == "f"), f"{group}/values")
        require(rows.values[0] == 0 and rows.values[-1] == len(entries.values), f"{group}/tile_row_offsets")
        result = []
        for i, j, begin, end in tiles_of(arrays, group):
            require(0 <= begin <= end <= len(entries.values), f"{group}/tile_offsets")
            require(j > 0 or begin == rows.values[i], f"{group}/tile_offsets")
            require(j < across - 1 or end == rows.values[i + 1], f"{group}/tile_offsets")
            require(tile_checksum(arrays, group, begin, end) == sums.values[i * across + j], f"checksum of {group}, tile {i},{j}")
            corner, limit = ([part * count // over for part, count, over in ((i + k, num_rows, parts), (j + k, num_columns, across))]
                             for k in (0, 1))
            packed = entries.values[begin:end]
            require(packed == sorted(packed), f"order in {group}, tile {i},{j}")
            for place, entry in enumerate(packed, begin):
                row, column = corner[0] + (entry >> 16), corner[1] + (entry & 0xffff)
                require(row < limit[0] and column < limit[1], f"an entry beyond tile {i},{j} of {group}")
                value = values.values[place] if values else 1
                require(math.isfinite(value), f"{group}/values")
                result.append((row, column, value))
        return result

    def check_vertices(self):
        n, self.ids = self.num_vertices, {}
        for order in self.orders:
            ids = self.column(f"/vertices/{order}/original_ids", "iq", n)
            require(sorted(ids) == list(range(n)), f"original ids of {order}")
            self.ids[order] = ids
        if len(self.orders) == 2:
            for order, other in (("p1", "p2"), ("p2", "p1")):
                places = self.column(f"/vertices/{order}/positions_in_other_order", "iq", n)
                require(all(0 <= place < n for place in places), f"positions in {order}")
                require([self.ids[other][place] for place in places] == self.ids[order], f"positions in {order}")

    def check_topology(self):
        facts, n = self.facts, self.num_vertices
        columns = self.ids[self.orders[-1]]
        even = [(self.ids["p1"][row], columns[column], value) for row, column, value in self.matrix("/topology/even", n, n)]
        require(len(even) == facts["num_entries"], "number of entries")
        require(sum(row == column for row, column, _ in even) == facts["num_self_loops"], "number of self loops")
        require(("/topology/even/values" in self.arrays) <= facts["is_weighted"], "is_weighted")
        flipped = sorted((column, row, value) for row, column, value in even)
        if facts["is_symmetric"]:
            require(sorted(even) == flipped, "symmetry")
        elif len(self.orders) == 2:
            odd = [(self.ids["p2"][row], self.ids["p1"][column], value)
                   for row, column, value in self.matrix("/topology/odd", n, n)]
            require(sorted(odd) == sorted(even), "the odd matrix is not the even one")
        degrees, sums, sizes = [0] * n, [0.0] * n, [0.0] * n
        for row, column, value in even:
            if row != column:
                degrees[row] += 1
                sums[row] += value
                sizes[row] += abs(value)
        require(max(degrees) == facts["max_degree"], "largest degree")
        for order in self.orders:
            stored = self.column(f"/vertices/{order}/degrees", "iq", n)
            require(stored == [degrees[vertex] for vertex in self.ids[order]], f"degrees of {order}")
            if facts["is_weighted"]:
                stored = self.column(f"/vertices/{order}/weight_sums", "d", n)
                require(all(abs(value - sums[vertex]) <= 1e-5 * sizes[vertex]
                            for value, vertex in zip(stored, self.ids[order])), f"sums of weights of {order}")

    def check_attributes(self):
        facts, n = self.facts, self.num_vertices
        kind = facts["feature_kind"]
        require(kind in ("none", "dense", "sparse"), "feature_kind")
        if kind == "dense":
            array = self.arrays.get("/features/dense")
            require(array and array.kind == "f" and array.shape == (facts["num_features"], n), "/features/dense")
            require(all(map(math.isfinite, array.values)), "features are not finite")
        elif kind == "sparse":
            entries = self.matrix("/features/sparse", n, facts["num_features"])
            require(len(entries) == facts["num_feature_entries"], "number of entries of the features")
        kind, classes = facts["label_kind"], facts["num_classes"]
        require(kind in ("none", "single", "multi", "real"), "label_kind")
        by_vertex = []
        for order in self.orders:
            columns = []
            if kind == "single":
                columns = [self.column(f"/labels/{order}", "i", n)]
                require(all(-1 <= label < classes for label in columns[0]), "labels")
            elif kind == "multi":
                array = self.arrays.get(f"/labels/{order}")
                require(array and array.kind == "b" and array.shape == (classes, n), f"/labels/{order}")
                require(set(array.values) <= {-1, 0, 1}, "labels")
                columns = [array.values[i * n:(i + 1) * n] for i in range(classes)]
            rows = list(zip(*columns)) or [()] * n
            if kind != "none":
                require(sum(set(row) != {-1} for row in rows) == facts["num_labelled"], "number of labels")
            bits = self.column(f"/split/{order}", "B", n) if facts["has_split"] else [0] * n
            require(max(bits) <= 7, "split")
            require([sum(bit >> i & 1 for bit in bits) for i in range(3)] == facts["split_sizes"], "sizes of the split")
            clusters = [0] * n
            if facts.get("num_clusters", 0) > 0:
                clusters = self.column(f"/vertices/{order}/clusters", "i", n)
                require(all(0 <= cluster < facts["num_clusters"] for cluster in clusters), "clusters")
            by_vertex.append(sorted(zip(self.ids[order], rows, bits, clusters)))
        require(len(set(map(repr, by_vertex))) == 1, "labels, split or clusters differ between the orders")

    def check(self):
        self.check_sums()
        self.check_vertices()
        self.check_topology()
        self.check_attributes()


if __name__ == "__main__":
    try:
        Store(hdf5.Library(sys.argv[1]), sys.argv[2]).check()
    except (ValueError, KeyError, IndexError, TypeError, struct.error, RecursionError) as problem:
        print(f"{type(problem).__name__}: {problem}")
