# SPDX-License-Identifier: Apache-2.0
"""Small graphs in every format that Orthant reads, written by hand, and mutations of them."""

import gzip
import io
import json
import math
import os
import random
import shutil
import struct
import zipfile

from plain_formats import TYPES, array_of

VERTICES, EDGES, FEATURES, CLASSES = 14, 40, 5, 4
HOSTILE_INTEGERS = [-1, -2, 0, 1, VERTICES - 1, VERTICES, 2**31 - 1, 2**31, 2**32, 2**32 + 1, 2**62, 2**63 - 1, 2**63, 2**64,
                    10**22 + 60, -2**31, -2**63]
HOSTILE_WORDS = [str(value) for value in HOSTILE_INTEGERS] + [
    "", "nan", "inf", "-inf", "1e400", "1e39", "-1e39", "1e-400", "0x10", "+1", "1.0", "1.", ".5", "1e1", "1_0", "-0", "007", "1 2",
    "1,2", "#", "%", "\"1\"", "one", "\0", "\u00e9", "1;2", "1\t2", "\r", "--1", "1e", "99999999999999999999999", "0" * 30 + "1"]


def npy(kind, shape, values, version=1):
    text = repr({"descr": kind, "fortran_order": False, "shape": tuple(shape)})
    return npy_of_header(text, struct.pack(f"<{len(values)}{TYPES[kind]}", *values), version)


def npy_of_header(text, data, version=1):
    begin = 10 if version == 1 else 12
    text += " " * (-(begin + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text.encode() + data


def npz(members, compression=zipfile.ZIP_STORED):
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", compression) as archive:
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, compression)  # a fixed date: the same bytes every time
    return memory.getvalue()


def text(rows, separator=","):
    return "".join(separator.join(map(str, row)) + "\n" for row in rows).encode()


def zipped(data):
    return gzip.compress(data, mtime=0)


def make_seeds():
    """{name: {file: bytes}}; a name without "/" in its only file is a graph in one file."""
    draw = random.Random(12)
    edges = [(draw.randrange(VERTICES), draw.randrange(VERTICES)) for _ in range(EDGES - 6)]
    edges += [edges[0], edges[1][::-1], edges[2], (3, 3), (3, 3), (VERTICES - 1, 0)]
    weights = [draw.choice([1.0, 0.5, 2.25, 0.75, -3e-3]) for _ in edges]
    x = [[round(draw.uniform(-2, 2), 3) for _ in range(FEATURES)] for _ in range(VERTICES)]
    classes = [draw.randrange(-1, CLASSES) for _ in range(VERTICES - 1)] + [CLASSES - 1]
    many = [[draw.choice([0, 1, 1, -1]) for _ in range(3)] for _ in range(VERTICES)]
    split = [list(range(0, 6)), list(range(6, 9)), list(range(9, 13))]
    flat = [value for row in x for value in row]
    ends = [source for source, _ in edges] + [target for _, target in edges]
    meta = json.dumps({"name": "seed", "num_nodes": VERTICES, "num_edge_lines": EDGES, "num_classes": CLASSES,
                       "splits": {"public": [6, 3, 4]}}, indent=1).encode()
    weighted = [edge + (weight,) for edge, weight in zip(edges, weights)]
    labels_text = text([("nan" if label < 0 else label,) for label in classes])
    many_text = text([["nan" if value < 0 else value for value in row] for row in many])
    raw = {"raw/num-node-list.csv.gz": zipped(text([(VERTICES,)])), "raw/num-edge-list.csv.gz": zipped(text([(EDGES,)]))}
    splits = {f"split/public/{name}.csv.gz": zipped(text([(vertex,) for vertex in part]))
              for name, part in zip(("train", "valid", "test"), split)}
    arrays = {f"{name}_idx.npy": npy("<i8", (len(part),), part) for name, part in zip(("train", "valid", "test"), split)}
    kept = [[(column, value) for column, value in enumerate(row) if value > 0] for row in x]
    pointers = [sum(map(len, kept[:i])) for i in range(VERTICES + 1)]
    sparse = {"x_indptr.npy": npy("<i8", (VERTICES + 1,), pointers),
              "x_indices.npy": npy("<i4", (pointers[-1],), [column for row in kept for column, _ in row]),
              "x_data.npy": npy("<f4", (pointers[-1],), [value for row in kept for _, value in row]),
              "x_shape.npy": npy("<i8", (2,), (VERTICES, FEATURES))}
    mtx = b"%%MatrixMarket matrix coordinate "
    size = f"{VERTICES} {VERTICES} {EDGES}\n".encode()
    from_one = [(source + 1, target + 1) for source, target in edges]
    archive = [("edge_index.npy", npy("<i8", (2, EDGES), ends)), ("num_nodes_list.npy", npy("<i8", (1,), [VERTICES])),
               ("num_edges_list.npy", npy("<i8", (1,), [EDGES])), ("node_feat.npy", npy("<f4", (VERTICES, FEATURES), flat))]
    types = [1 if v in split[0] else 2 if v in split[1] else 3 if v in split[2] else 0 for v in range(VERTICES)]
    matrix = [("row.npy", npy("<i4", (EDGES,), ends[:EDGES])), ("col.npy", npy("<i4", (EDGES,), ends[EDGES:])),
              ("shape.npy", npy("<i8", (2,), (VERTICES, VERTICES))), ("data.npy", npy("<i8", (EDGES,), [1] * EDGES))]
    beside = [("feature.npy", npy("<f8", (VERTICES, FEATURES), flat)), ("label.npy", npy("<i4", (VERTICES,), classes)),
              ("node_types.npy", npy("<i4", (VERTICES,), types))]
    return {
        "plain.txt": {"plain.txt": b"# a comment\nsource target\n" + text(edges, " ")},
        "commas.tsv.gz": {"commas.tsv.gz": zipped(text(weighted))},
        "weighted.el": {"weighted.el": text(weighted, "\t")},
        "general.mtx": {"general.mtx": mtx + b"real general\n% about it\n" + size
                        + text([pair + (weight,) for pair, weight in zip(from_one, weights)], " ")},
        "pattern.mtx.gz": {"pattern.mtx.gz": zipped(mtx + b"pattern symmetric\n" + size
                                                    + text([(max(pair), min(pair)) for pair in from_one], " "))},
        "integer.mtx": {"integer.mtx": mtx + b"integer symmetric\n" + size
                        + text([(max(pair), min(pair), 1 + i % 4) for i, pair in enumerate(from_one)], " ")},
        "ogb": raw | splits | {"raw/edge.csv.gz": zipped(text(edges)), "raw/node-feat.csv.gz": zipped(text(x)),
                               "raw/node-label.csv.gz": zipped(labels_text), "meta.json": meta},
        "ogb_weighted": raw | {"raw/edge.csv": text(edges), "raw/edge-weight.csv": text([(weight,) for weight in weights]),
                               "raw/node-label.csv": many_text, "raw/node-feat.csv": text(x)},
        "ogb_npz": splits | {"raw/data.npz": npz(archive),
                             "raw/node-label.npz": npz([("node_label.npy", npy("<f4", (VERTICES, 1), [
                                 math.nan if label < 0 else label for label in classes]))])},
        "ogb_deflated": {"raw/data.npz": npz(archive, zipfile.ZIP_DEFLATED),
                         "raw/node-label.npz": npz([("node_label.npy", npy("<i8", (VERTICES, 3), sum(many, [])))],
                                                   zipfile.ZIP_DEFLATED)},
        "dgl": {"seed_graph.npz": npz(matrix, zipfile.ZIP_DEFLATED), "seed_data.npz": npz(beside)},
        "pyg": {f"{name}_mask.npy": npy("|b1", (VERTICES,), [v in part for v in range(VERTICES)])
                for name, part in zip(("train", "val", "test"), split)}
               | {"edge_index.npy": npy("<i8", (2, EDGES), ends), "edge_attr.npy": npy("<f4", (EDGES, 1), weights),
                  "x.npy": npy("<f4", (VERTICES, FEATURES), flat), "y.npy": npy("<i8", (VERTICES, 1), classes)},
        "npy": arrays | {"edge_index.npy": npy("<i8", (2, EDGES), ends), "edge_weight.npy": npy("<f4", (EDGES,), weights),
                         "x.npy": npy("<f4", (VERTICES, FEATURES), flat), "labels.npy": npy("<i8", (VERTICES,), classes),
                         "meta.json": meta},
        "npy_sparse": arrays | sparse | {"edge_index.npy": npy("<i4", (2, EDGES), ends, 2),
                                         "labels.npy": npy("|i1", (VERTICES, 3), sum(many, []))},
        "npy_small": {"edge_index.npy": npy("|u1", (2, EDGES), ends), "x.npy": npy("<f2", (VERTICES, FEATURES), flat),
                      "labels.npy": npy("|u1", (VERTICES, 1), [max(label, 0) for label in classes]),
                      "edge_weight.npy": npy("<f8", (EDGES,), weights)},
    }


# ---- mutations: each takes bytes and gives bytes ----------------------------------------------------------------------

def flip(draw, data):
    data = bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 8])):
        if data:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(data)


def truncate(draw, data):
    return data[:draw.randrange(len(data))] if data else data


def insert(draw, data):
    at = draw.randrange(len(data) + 1)
    piece = draw.choice([bytes(draw.randrange(256) for _ in range(draw.choice([1, 4, 8]))), b"\0" * 8, b"\xff" * 8, b"\n", b","])
    return data[:at] + piece + data[at:]


def splice(draw, data):
    """A stretch from one place to another, or twice."""
    if not data:
        return data
    begin = draw.randrange(len(data))
    piece = data[begin:begin + draw.randrange(1, 40)]
    at = draw.randrange(len(data))
    return data[:at] + piece + (data[at:] if draw.random() < 0.5 else data[at + len(piece):])


def change_word(draw, data):
    """One number of a text becomes a hostile one; or a line goes, comes twice, or swaps with another."""
    lines = data.decode("latin-1").split("\n")
    at = draw.randrange(max(1, len(lines) - 1))
    what = draw.randrange(8)
    if what == 0:
        del lines[at]
    elif what == 1:
        lines.insert(at, lines[at])
    elif what == 2:
        return data.rstrip(b"\n")
    else:
        separator = next((mark for mark in (",", "\t", " ") if mark in lines[at]), ",")
        words = lines[at].split(separator)
        words[draw.randrange(len(words))] = draw.choice(HOSTILE_WORDS)
        lines[at] = separator.join(words)
    return "\n".join(lines).encode("latin-1", "replace")


def change_array(draw, data):
    """One part of a .npy: its shape, type, order, version, length or one number."""
    kind, shape, values = array_of(data)
    version, body = data[6], data[len(data) - len(values) * struct.calcsize(TYPES[kind]):]
    text_of_shape = repr(tuple(shape))
    descr, order = kind, "False"
    what = draw.randrange(6)
    if what == 0:
        extents = [str(extent) for extent in shape]
        extents[draw.randrange(len(extents))] = draw.choice(HOSTILE_WORDS[:17] + ["3.0", "0x10", "5L", "", "nan", " 14", "1e1"])
        text_of_shape = "(" + ", ".join(extents) + ("," if len(extents) == 1 else "") + ")"
    elif what == 1:
        text_of_shape = repr(draw.choice([tuple(shape[::-1]), tuple(shape) + (1,), (len(values),), (1,) + tuple(shape), (),
                                          tuple(shape) + (0,), (0,), (len(values), 1), (len(values) // 2, 2), (-1, -len(values))]))
    elif what == 2:
        descr = draw.choice(list(TYPES) + [">i8", "<c8", "|S8", "|O", "<i16", "=i8", "i8", "<f16", "", "|V8"])
    elif what == 3:
        order = draw.choice(["True", "Falsehood", "0", "None"])
    elif what == 4:
        version = draw.choice([0, 1, 2, 3, 4, 255])
    elif values:
        at = draw.randrange(len(values))
        hostile = [math.nan, math.inf, 1e39, -1, 0.5, 2.0**24, 1e308] if kind[1] == "f" else HOSTILE_INTEGERS
        try:
            values[at] = draw.choice(hostile)
            return npy(kind, shape, values, version)
        except (struct.error, OverflowError):
            return data
    text_of_header = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {text_of_shape}, }}"
    changed = npy_of_header(text_of_header, body, 1 if version == 1 else 2)
    return changed[:6] + bytes([version]) + changed[7:]


def change_archive(draw, data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    what = draw.randrange(5)
    at = draw.randrange(len(members))
    name, member = members[at]
    if what == 0 and len(members) > 1:
        del members[at]
    elif what == 1:
        members[at] = (draw.choice(["edge_index", "edge_index.npy", "../x.npy", "x" * 300, name.upper()]), member)
    else:
        change = draw.choice([change_array, change_array, flip, truncate])
        members[at] = (name, change(draw, member))
    return npz(members, draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))


def change_json(draw, data):
    meta = json.loads(data)
    key = draw.choice(list(meta))
    hostile = HOSTILE_INTEGERS + [14.0, 14.5, 40.5, 1e300, True, None, "14", "", [], {}, [14], {"public": 1}, {"": []}, -1.0, math.nan]
    meta[key] = draw.choice(hostile)
    return json.dumps(meta).encode()


def mutate(draw, files):
    """(description, files): one file changed, by a change that fits it or by any; None stands for special entries."""
    files = dict(files)
    name = draw.choice(sorted(files))
    data = files[name]
    if len(files) > 1 and draw.random() < 0.08:
        what = draw.choice(["delete", "empty", "folder", "dangling link", "looping link", "swap"])
        other = draw.choice(sorted(files))
        if what == "swap":
            files[name], files[other] = files[other], files[name]
        elif what == "delete":
            del files[name]
        else:
            files[name] = b"" if what == "empty" else what
        return f"{what} {name}", files
    is_zipped = name.endswith(".gz")
    plain = gzip.decompress(data) if is_zipped else data
    changes = [flip, truncate, insert, splice]
    inner = name[:-3] if is_zipped else name
    fitting = {".npy": change_array, ".npz": change_archive, "json": change_json}.get(inner[-4:], change_word)
    if draw.random() < 0.6:
        change, on_zipped = fitting, False
    else:
        change, on_zipped = draw.choice(changes), is_zipped and draw.random() < 0.3
    files[name] = change(draw, data) if on_zipped else zipped(change(draw, plain)) if is_zipped else change(draw, plain)
    return f"{change.__name__} {name}{' (compressed bytes)' if on_zipped else ''}", files


def write_files(files, folder):
    for name, data in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if data == "folder":
            os.mkdir(path)
        elif data == "dangling link":
            os.symlink("nowhere", path)
        elif data == "looping link":
            os.symlink(os.path.basename(path), path)
        else:
            with open(path, "wb") as file:
                file.write(data)


def remove(folder):
    shutil.rmtree(folder, ignore_errors=True)
