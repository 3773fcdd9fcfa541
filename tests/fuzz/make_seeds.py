#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seed corpus of every fuzz target: small valid inputs and some that are nearly so.

usage: make_seeds.py FOLDER      (FOLDER/TARGET/NAME)
Needs nothing but Python's own library, so that every machine that builds the tests can make them.
"""
import gzip
import io
import pathlib
import struct
import sys
import zipfile


def npy(descr, shape, values, fmt, version=1):
    """A .npy array of `values`, packed with struct's `fmt` ('<q' ..)."""
    text = "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }" % (
        descr, "".join(f"{n}, " for n in shape))
    head = b"\x93NUMPY" + bytes([version, 0])
    size_format = "<H" if version == 1 else "<I"
    text += " " * (-(len(head) + struct.calcsize(size_format) + len(text) + 1) % 64) + "\n"
    return head + struct.pack(size_format, len(text)) + text.encode() + b"".join(
        struct.pack(fmt, value) for value in values)


def npz(members, method):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", method) as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo(name), content, compress_type=method)
    return archive.getvalue()


def files(**contents):
    """The files of one folder as the target input_folder takes them; '__' in a key stands for '/', '_dot_' for '.'."""
    parts = []
    for key, content in contents.items():
        name = key.replace("__", "/").replace("_dot_", ".")
        parts.append(f"--- {name}\n".encode() + (content.encode() if isinstance(content, str) else content))
    return b"\n".join(parts)


edges = npy("<i8", (2, 3), [0, 1, 2, 1, 2, 3], "<q")
weights = npy("<f4", (3,), [0.5, 1, 2], "<f")
features = npy("<f4", (4, 2), [0, 1, 2, 3, 4, 5, 6, 7], "<f")
labels = npy("<i8", (4,), [0, 1, -1, 2], "<q")
text_graph = dict(
    raw__edge_dot_csv="0,1\n1,2\n2,3\n", **{"raw__num-node-list_dot_csv": "4\n", "raw__num-edge-list_dot_csv": "3\n",
    "raw__node-feat_dot_csv": "0,1\n1,2\n2,3\n3,4\n", "raw__node-label_dot_csv": "0\n1\nnan\n2\n"},
    split__one__train_dot_csv="0\n1\n", split__one__valid_dot_csv="2\n", split__one__test_dot_csv="3\n")

seeds = {
    "npy": {
        "int64": edges, "float32": weights, "version2": npy("<i8", (3,), [1, 2, 3], "<q", 2),
        "int8": npy("|i1", (3,), [1, -2, 3], "<b"), "half": npy("<f2", (2,), [1.0, -2.0], "<e"),
        "uint64": npy("<u8", (2,), [1, 2**64 - 1], "<Q"), "empty": npy("<i8", (0,), [], "<q"),
        "number": npy("<f8", (), [1.0], "<d"), "no_columns": npy("<i8", (4, 0), [], "<q"),
    },
    "npz": {
        "stored": npz({"edge_index.npy": edges, "x.npy": features}, zipfile.ZIP_STORED),
        "deflated": npz({"edge_index.npy": edges, "x.npy": features}, zipfile.ZIP_DEFLATED),
        "empty": npz({}, zipfile.ZIP_STORED),
    },
    "edge_text": {
        "commas": b"\x000,1\n1,2\n", "blanks": b"\x01# comment\n0 1\n1\t2\n", "header": b"\x20source,target\n0,1\n",
        "weights": b"\x040 1 0.5\n1 2 1e-3\n", "passed_over": b"\x080 1 0.5\n", "no_end": b"\x000 1",
        "gzip": b"\x00" + gzip.compress(b"0,1\n1,2\n", mtime=0),
        "two_members": b"\x00" + gzip.compress(b"0,1\n", mtime=0) + gzip.compress(b"1,2\n", mtime=0),
        "long_number": b"\x1012345678901234567890 1\n", "one_based": b"\x021 2\n2 100\n", "empty": b"\x00",
    },
    "table_text": {
        "features": b"\x010,1.5\n-2e3,3\n4,5\n", "classes": b"\x000\nnan\n-1\n", "floats": b"\x000.0\n1.0\n2.0\n",
        "indicator": b"\x010,1\nnan,0\n1,1\n", "number": b"\x0042\n", "gzip": b"\x00" + gzip.compress(b"3\n", mtime=0),
        "huge": b"\x001e400\ninf\n-inf\n", "empty": b"\x00",
    },
    "matrix_market": {
        "pattern": b"%%MatrixMarket matrix coordinate pattern symmetric\n% comment\n3 3 2\n2 1\n3 2\n",
        "real": b"%%MatrixMarket matrix coordinate real general\n2 2 2\n1 2 0.5\n2 1 1e-2\n",
        "array": b"%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n4\n",
        "huge": b"%%MatrixMarket matrix coordinate pattern general\n999999999999999999 999999999999999999 1\n1 1\n",
    },
    "input_folder": {
        "text": files(**text_graph), "described": files(meta_dot_json='{"name": "a", "num_nodes": 4, "num_classes": 3, '
                                                        '"splits": {"one": [2, 1, 1]}}', **text_graph),
        "arrays": files(edge_index_dot_npy=edges, edge_weight_dot_npy=weights, x_dot_npy=features,
                        labels_dot_npy=labels, train_idx_dot_npy=npy("<i8", (2,), [0, 1], "<q")),
        "sparse": files(edge_index_dot_npy=edges, x_indptr_dot_npy=npy("<i8", (5,), [0, 1, 2, 2, 3], "<q"),
                        x_indices_dot_npy=npy("<i4", (3,), [0, 1, 1], "<i"), x_data_dot_npy=weights,
                        x_shape_dot_npy=npy("<i8", (2,), [4, 2], "<q")),
        "no_columns": files(edge_index_dot_npy=edges, labels_dot_npy=npy("<i8", (4, 0), [], "<q")),
        "archives": files(
            g_graph_dot_npz=npz({"row.npy": npy("<i4", (2,), [0, 1], "<i"), "col.npy": npy("<i4", (2,), [1, 3], "<i"),
                                 "shape.npy": npy("<i8", (2,), [4, 4], "<q")}, zipfile.ZIP_STORED),
            g_data_dot_npz=npz({"feature.npy": features, "label.npy": labels,
                                "node_types.npy": npy("<i4", (4,), [1, 2, 3, 0], "<i")}, zipfile.ZIP_STORED)),
        "pyg": files(edge_index_dot_npy=edges, edge_attr_dot_npy=npy("<f4", (3, 1), [0.5, 1, 2], "<f"), x_dot_npy=features,
                     y_dot_npy=labels, train_mask_dot_npy=npy("|b1", (4,), [1, 0, 0, 0], "<?"),
                     val_mask_dot_npy=npy("|b1", (4,), [0, 1, 0, 0], "<?"), test_mask_dot_npy=npy("|u1", (4,), [0, 0, 0, 1], "<B")),
        "dgl": files(edge_index_dot_npy=edges, feat_dot_npy=features, label_dot_npy=labels,
                     train_idx_dot_npy=npy("<i8", (1,), [0], "<q"), val_idx_dot_npy=npy("<i8", (1,), [1], "<q"),
                     test_idx_dot_npy=npy("<i8", (1,), [3], "<q"), graph_dot_bin=b"\0"),
        "market": files(graph_dot_mtx="%%MatrixMarket matrix coordinate pattern general\n3 3 1\n1 2\n"),
        "nothing": b"",
    },
    "store": {
        "unchanged": b"\0",
        "entry": b"\0" + bytes([30, 0, 0]) + struct.pack("<q", 0xFFFFFFFF),
        "shorter": b"\0" + bytes([5, 1, 0]) + struct.pack("<q", 3),
        "flat": b"\0" + bytes([12, 7, 0]) + struct.pack("<q", 0),
        "facts": b'{"num_vertices": 41, "num_classes": -3}\0', "clusters": b'{"num_vertices": 40, "num_clusters": 41}\0',
    },
    "config": {
        "flat": b"seed = 7\nlr = 0.01\nbias = true\n", "tables": b"[train]\nhidden = 128\nrandom-split = [0.6, 0.2]\n",
        "nested": b"[bench.collectives]\nsizes = \"4:1M\"\n", "wrong": b"[train\nlr = [[1], {a = 2}]\n",
        "numbers": b"[train]\nhidden = 9223372036854775807\nlr = 1e400\n",
        "batches": b"[train]\nbatch = \"auto\"\nsampler = \"clusters\"\nbatch-edges = \"renormalize\"\nroc-auc = true\n",
    },
    "command_line": {
        "train": b"--graph\ng.h5\n--grid\n1x2x3x2\n--lr=0.01\n--no-bias\n--random-split\n0.6,0.2,0.2\n",
        "partition": b"--input\na\n-o\ng.h5\n--permute\ncluster\n--metis\n8\n",
        "numbers": b"--hidden\n9223372036854775808\n--layers\n-1\n--lr\nnan\n4294967296x1x1x1\n",
        "batches": b"--mode\nminibatch\n--batch\nauto\n--sampler=degree\n--batch-edges\nrescale\n--finish-full\n10\n--roc-auc\n",
        "clusters": b"--input\na\n-o\ng.h5\n--clusters\n64\n", "foreign": b"--batch-size\n512\n--wd=5e-4\n--hidden-channels\n64\n",
        "help": b"--help\n", "empty": b"",
    },
}

if len(sys.argv) != 2:
    sys.exit(__doc__)
for target, inputs in seeds.items():
    folder = pathlib.Path(sys.argv[1]) / target
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in inputs.items():
        (folder / name).write_bytes(content)
