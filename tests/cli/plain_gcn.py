# SPDX-License-Identifier: Apache-2.0
"""A GCN in plain Python from the weights in a safetensors file, as PyTorch Geometric defines it (GCNConv:
D^-1/2 (A + I) D^-1/2 x W^T + b), and the files that it reads and writes."""

import gzip
import json
import math
import os
import struct


def nested(shape, numbers):
    if len(shape) == 1:
        return numbers
    size = len(numbers) // shape[0]
    return [nested(shape[1:], numbers[i * size:(i + 1) * size]) for i in range(shape[0])]


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    about = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        code = {"F32": "f", "F64": "d"}[entry["dtype"]]
        numbers = struct.unpack(f"<{(end - begin) // struct.calcsize(code)}{code}", data[begin:end])
        tensors[name] = nested(entry["shape"], numbers)
    return tensors, about


def write_safetensors(path, tensors):
    """Of {name: (dtype, shape, bytes)}."""
    header, end, data = {}, 0, b""
    for name, (dtype, shape, numbers) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(numbers)]}
        end += len(numbers)
        data += numbers
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def table(folder, name, kind=float):
    path = os.path.join(folder, name)
    with gzip.open(path + ".gz", "rt") if os.path.exists(path + ".gz") else open(path, encoding="utf-8") as file:
        return [[kind(word) for word in line.split(",")] for line in file]


def layer_outputs(features, edges, tensors):
    """Of each layer, [vertices x outputs]: after ReLU, and of the last one the logits. Edges have no direction."""
    neighbors = [{v} for v in range(len(features))]  # with the self loop
    for u, v in edges:
        neighbors[u].add(v)
        neighbors[v].add(u)
    scale = [1 / math.sqrt(len(near)) for near in neighbors]
    outputs, rows = [], features
    while f"convs.{len(outputs)}.lin.weight" in tensors:
        layer = len(outputs)
        weight, bias = tensors[f"convs.{layer}.lin.weight"], tensors[f"convs.{layer}.bias"]
        mapped = [[sum(x * w for x, w in zip(row, out)) for out in weight] for row in rows]
        rows = [[scale[v] * sum(scale[u] * mapped[u][j] for u in near) + bias[j] for j in range(len(bias))]
                for v, near in enumerate(neighbors)]
        if f"convs.{layer + 1}.lin.weight" in tensors:
            rows = [[max(x, 0.0) for x in row] for row in rows]
        outputs.append(rows)
    return outputs


def softmax(row):
    terms = [math.exp(x - max(row)) for x in row]
    return [term / sum(terms) for term in terms]
