#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GAT and GATv2 that read features of edges, through the program: edge_features.py PROGRAM

Losses from a safetensors file with the names of PyTorch Geometric are its own (tests/models/reference/edge_features.py), on the full graph and
on a batch of all vertices. They are trained with, evaluated, exported, and gone on from on another number of ranks.
"""

import json
import math
import os
import struct
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from folders import npy  # noqa: E402
from plain_gcn import write_safetensors  # noqa: E402
from program import attempt_all, expect_mistake, expect_success, require  # noqa: E402
from trainings import lines_of, losses  # noqa: E402

HEADS = ["--heads", "4", "--output-heads", "2"]
MODELS = {name: ["--model", name, *HEADS, "--hidden", "8", "--layers", "3", "--compute-dtype", "fp64"] for name in ("gat", "gatv2")}
BATCHES = ["--mode", "minibatch", "--batch", "20"]
SPLITS = ["--random-split", "0.5,0.2,0.3"]
WIDTHS, CLASSES, EDGE_FEATURES = (5, 8, 8), 4, 3  # of the figures of PyTorch Geometric


def all_close(found, expected, most=1e-10):
    return len(found) == len(expected) and all(abs(a - b) < most for a, b in zip(found, expected))


def write_folder(folder, arrays):
    os.mkdir(folder)
    for name, (kind, shape, numbers) in arrays.items():
        with open(os.path.join(folder, f"{name}.npy"), "wb") as file:
            file.write(npy(kind, shape, numbers))


def ring_in(folder):
    """A ring with longer edges, self loops and a vertex without edges."""
    count = 60
    edges = [(v, (v + step) % (count - 1)) for step in (0, 1, 7) for v in range(count - 1) if step > 0 or v % 9 == 0]
    write_folder(folder, {"edge_index": ("<i8", (2, len(edges)), [u for u, _ in edges] + [v for _, v in edges]),
                          "edge_attr": ("<f4", (len(edges), 3), [(k * 37 % 64 - 32) / 16 for k in range(3 * len(edges))]),
                          "x": ("<f4", (count, 4), [(k * 29 % 64 - 32) / 16 for k in range(4 * count)]),
                          "y": ("<i8", (count,), [v % 3 for v in range(count)])})


def given_by_pyg():
    with open(os.path.join(HERE, "..", "..", "models", "reference", "edge_features.json"), encoding="utf-8") as file:
        return json.load(file)


def given_graph_in(folder, graph):
    """The graph of the figures."""
    n, edges = graph["vertices"], len(graph["sources"])
    write_folder(folder, {"edge_index": ("<i8", (2, edges), graph["sources"] + graph["targets"]),
                          "edge_attr": ("<f4", (edges, EDGE_FEATURES), graph["edge_features"]),
                          "x": ("<f4", (n, WIDTHS[0]), graph["features"]), "labels": ("<i8", (n,), graph["labels"]),
                          "train_idx": ("<i8", (len(graph["train"]),), graph["train"]),
                          "valid_idx": ("<i8", (0,), []), "test_idx": ("<i8", (0,), [])})


def formula(number, rows, columns, is_vector):
    """Rows of parameter `number`, as the script of the figures has them."""

    def element(i, j):
        k = (31 * i * i + 6007 * i * j + 7919 * i + 38183 * j + 104729 * number + 12345) % 100003
        u = 2 * k / 100003 - 1
        return u / 8 if is_vector else math.sqrt(6 / (rows + columns)) * u

    return [[element(i, j) for j in range(columns)] for i in range(rows)]


def state_dict(model):
    """The parameters of the figures, with the names and shapes of GATConv and GATv2Conv."""
    tensors, number = {}, 0
    is_dynamic = model == "gatv2"
    transposed = lambda rows: [list(column) for column in zip(*rows)]
    for layer, width in enumerate(WIDTHS):
        heads, d = (2, CLASSES) if layer == 2 else (4, 2)
        every = heads * d
        shapes = {"weight": (width, every * (2 if is_dynamic else 1)), "bias": (1, d if layer == 2 else every),
                  "attention": (heads, d * (1 if is_dynamic else 2)), "edge_weight": (EDGE_FEATURES, every), "edge_attention": (heads, d)}
        values = {}
        for name in list(shapes)[:4 if is_dynamic else 5]:
            values[name] = formula(number, *shapes[name], name == "bias")
            number += 1
        part = lambda rows, begin, end: [row[begin:end] for row in rows]
        heads_of = lambda rows: ([1, heads, d], rows)
        named = {"bias": ([len(values["bias"][0])], values["bias"]), "lin_edge.weight": ([every, EDGE_FEATURES], transposed(values["edge_weight"]))}
        if is_dynamic:
            named |= {"lin_l.weight": ([every, width], transposed(part(values["weight"], 0, every))),
                      "lin_r.weight": ([every, width], transposed(part(values["weight"], every, 2 * every))),
                      "att": heads_of(values["attention"]), "lin_l.bias": ([every], [[0.0] * every]), "lin_r.bias": ([every], [[0.0] * every])}
        else:
            named |= {"lin.weight": ([every, width], transposed(values["weight"])), "att_dst": heads_of(part(values["attention"], 0, d)),
                      "att_src": heads_of(part(values["attention"], d, 2 * d)), "att_edge": heads_of(values["edge_attention"])}
        for name, (shape, rows) in named.items():
            numbers = [number for row in rows for number in row]
            tensors[f"convs.{layer}.{name}"] = ("F64", shape, struct.pack(f"<{len(numbers)}d", *numbers))
    return tensors


def header_of(path):
    """Names with shapes, and the bytes of the tensors."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    return {name: (entry["shape"], data[8 + length + entry["data_offsets"][0]:8 + length + entry["data_offsets"][1]])
            for name, entry in json.loads(data[8:8 + length]).items() if name != "__metadata__"}


def state_dicts_of_pyg_give_its_losses(ranks):
    """On the full graph and on a batch of all vertices; and what comes back has the bits that went in."""
    figures = given_by_pyg()
    with tempfile.TemporaryDirectory() as scratch:
        path = lambda name: os.path.join(scratch, name)
        given_graph_in(path("g"), figures["graph"])
        done = expect_success(ranks, ["partition", "--input", path("g"), "-o", path("g.h5"), "--directed", "--edge-features", "keep"])
        for name, model in MODELS.items():
            tensors, weights, again = (path(f"{name}.{end}") for end in ("safetensors", "h5", "again.safetensors"))
            write_safetensors(tensors, state_dict(name))
            expect_success(ranks, ["import-weights", tensors, "-o", weights])
            expect_success(1, ["export-weights", weights, "-o", again])
            given = {tensor: (shape, numbers) for tensor, (_, shape, numbers) in state_dict(name).items()}
            require(header_of(again) == given, f"{name}: other tensors come back: {sorted(header_of(again))}", done)
            words = ["train", "--graph", path("g.h5"), *model, "--init-from", weights, "--dropout", "0", "--lr", "0.01", "--epochs", "5", "--eval-every", "0",
                     "--grid", f"1x{ranks}x1x1"]
            for mode in ([], ["--prune", "on"], *(["--mode", "minibatch", "--batch", "23", "--sampler", sampler] for sampler in ("uniform", "degree"))):
                found = losses(lines_of(ranks, scratch, [*words, *mode]))
                require(all_close(found, figures[name]["losses"]), f"{name} {mode}: {found}, not {figures[name]['losses']}", done)


def weights_go_there_and_back(ranks):
    """With the parts that surround the layers, in both precisions; the program's other weights of attention say why they do not."""
    with tempfile.TemporaryDirectory() as scratch:
        path = lambda name: os.path.join(scratch, name)
        ring_in(path("g"))
        expect_success(1, ["partition", "--input", path("g"), *SPLITS, "-o", path("g.h5"), "--edge-features", "keep"])
        for name in MODELS:
            for number, parts in enumerate(([], ["--norm", "batch", "--residual", "project", "--compute-dtype", "fp64"], ["--norm", "layer", "--head", "--input-projection"],
                                            ["--norm", "rms", "--no-bias", "--activation", "elu", "--layers", "1"])):
                weights, tensors, back = (path(f"{name}{number}{end}") for end in (".h5", ".safetensors", "-back.h5"))
                words = ["train", "--graph", path("g.h5"), "--model", name, *HEADS, "--hidden", "8", "--epochs", "2", "--save-weights", weights, *parts]
                lines_of(ranks, scratch, words)
                done = expect_success(1, ["info", weights])
                require("3 features of edges" in done.stdout, "says nothing of features of edges", done)
                expect_success(ranks, ["export-weights", weights, "-o", tensors])
                expect_success(ranks, ["import-weights", tensors, "-o", back])
                expect_success(1, ["export-weights", back, "-o", path("again.safetensors"), "--force"])
                require(header_of(tensors) == header_of(path("again.safetensors")), f"{name} {parts}: other tensors", done)
                evaluate = lambda file: lines_of(1, scratch, ["evaluate", "--graph", path("g.h5"), "--weights", file])[-1]["val_loss"]
                require(evaluate(weights) == evaluate(back), f"{name} {parts}: other losses", done)
                lines_of(ranks, scratch, [*words[:-2 - len(parts)], *parts, "--init-from", back])
        expect_success(1, ["train", "--graph", path("g.h5"), "--model", "transformer", "--epochs", "1", "--hidden", "8", "--save-weights", path("t.h5")])
        expect_mistake(ranks, ["export-weights", path("t.h5"), "-o", path("t.safetensors")], r"has layers of attention by dot products, which are not exported")


def damaged_state_dicts_are_refused(_):
    with tempfile.TemporaryDirectory() as scratch:
        path, output = os.path.join(scratch, "w.safetensors"), os.path.join(scratch, "w.h5")
        ones = lambda *shape: ("F64", list(shape), struct.pack("<d", 1.0) * math.prod(shape))
        for name, change, message in (("gat", {"convs.1.att_edge": None}, r"there is no 'convs\.1\.att_edge'"),
                                      ("gat", {"convs.0.att_edge": ones(1, 2, 4)}, r"'convs\.0\.att_edge' has the shape \[1, 2, 4\]; beside the others it is \[1, 4, 2\]"),
                                      ("gat", {"convs.1.lin_edge.weight": ones(8, 2)}, r"layer 1 reads 2 features of edges, and the layer before it 3"),
                                      ("gat", {"convs.1.lin.weight": ones(8, 7)}, r"layer 1 takes 7 columns, but the layer before it gives 8"),
                                      ("gat", {"convs.3.bias": ones(4)}, r"'convs\.3\.bias' is no parameter of GAT"),
                                      ("gat", {"convs.0.att_src": ones(4, 2)}, r"'convs\.0\.att_src' has the shape \[4, 2\]|there is no|no parameter"),
                                      ("gatv2", {"convs.0.lin_r.bias": ones(8)}, r"'convs\.0\.lin_r\.bias' is not 0, and the model has no such parameter"),
                                      ("gatv2", {"convs.2.lin_r.weight": None}, r"there is no 'convs\.2\.lin_r\.weight'")):
            tensors = {tensor: value for tensor, value in (state_dict(name) | change).items() if value is not None}
            write_safetensors(path, tensors)
            expect_mistake(1, ["import-weights", path, "-o", output], message)
            if os.path.exists(output):
                raise AssertionError(f"{message}: wrote a file")


def edge_features_are_read(ranks):
    """They are trained with, evaluated, and gone on from on another number of ranks, also pruned and in mini-batches."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, store, plain = (os.path.join(scratch, name) for name in ("g", "e.h5", "p.h5"))
        ring_in(folder)
        partition = ["partition", "--input", folder, *SPLITS, "--clusters", "9"]
        expect_success(ranks, [*partition, "-o", store, "--edge-features", "keep"])
        expect_success(1, [*partition, "-o", plain, "--weights", "ignore"])
        done = expect_success(ranks, ["info", store, "--verify"])
        require("3 features each" in done.stdout, "says nothing of features", done)
        for name, model in MODELS.items():
            words = ["train", "--graph", store, *model, "--dropout", "0.3", "--attention-dropout", "0.2", "--eval-every", "2"]
            weights, checkpoint = os.path.join(scratch, f"{name}.h5"), ["--checkpoint", os.path.join(scratch, name)]
            trained = lines_of(ranks, scratch, [*words, "--epochs", "4", "--save-weights", weights])
            without = lines_of(ranks, scratch, [*words[:2], plain, *words[3:], "--epochs", "4"])
            require(not all_close(losses(trained), losses(without)), f"{name} does not read them", done)
            lines_of(1, scratch, [*words, "--epochs", "2", *checkpoint])
            rest = losses(lines_of(ranks, scratch, [*words, "--epochs", "4", *checkpoint, "--resume", "auto"]))
            require(all_close(rest, losses(trained)), f"{name} goes on as {rest}, not {losses(trained)}", done)
            evaluate = ["evaluate", "--weights", weights, "--compute-dtype", "fp64", "--graph"]
            found = lines_of(1, scratch, [*evaluate, store])[-1]
            require(abs(found["test_loss"] - trained[-2]["test_loss"]) < 1e-10, f"{name}: {found}, {trained[-2]}", done)
            expect_mistake(ranks, [*evaluate, plain], r"reads 3 features of edges, and the edges of .* have none")
            expect_mistake(ranks, [*words[:2], plain, *words[3:], "--init-from", weights], r"another architecture: its edge_features is 3")
            for more in (["--prune", "on"], BATCHES, [*BATCHES, "--sampler", "clusters"], [*BATCHES, "--sampler", "degree", "--finish-full", "2"]):
                on = lambda count: losses(lines_of(count, scratch, [*words, *more, "--epochs", "4", "--grid", f"1x{count}x1x1"]))
                require(all_close(on(ranks), on(1)), f"{name} {more}: other losses on one rank", done)
            for more in ([], [*BATCHES, "--exact"]):
                expect_success(1, ["plan", "--graph", store, *model[:-2], "--ranks", "4", *more])
        ignored = expect_success(ranks, ["train", "--graph", store, "--epochs", "1", "--hidden", "8"])
        require("does not read the features of edges" in ignored.stderr, "does not warn", ignored)


def main():
    both = [state_dicts_of_pyg_give_its_losses, weights_go_there_and_back, edge_features_are_read]
    raise SystemExit(attempt_all([(1, (damaged_state_dicts_are_refused,)), *((ranks, (function,)) for ranks in (1, 3) for function in both)]))


if __name__ == "__main__":
    main()
