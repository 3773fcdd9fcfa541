#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--model rgat: rgat.py PROGRAM [RANKS ..]

Losses of 20 steps of Adam, from a safetensors file, are those of PyTorch Geometric: a GATConv for each relation without self loops, summed,
and a linear layer behind them, in fp64. With dropout they are equal on all grids. RANKS: compares losses on these numbers of ranks alone.
"""

import json
import math
import os
import struct
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from plain_gcn import read_safetensors, write_safetensors  # noqa: E402
from program import Failure, attempt_all, expect_mistake, expect_success, require  # noqa: E402
from relational_training import GRIDS, events_of, graph_in, require_close  # noqa: E402
from typed_graphs import COUNT, NUM_CLASSES, OFFSETS, TYPES, WIDTH, Graph  # noqa: E402

HEADS, HEAD_WIDTH = 2, 3
HIDDEN = HEADS * HEAD_WIDTH
# torch 2.15.0 and torch_geometric 2.8.1, on the graph of typed_graphs.py and the parameters of drawn().
EXPECTED = {
    "shared": [1.609945635663282, 1.3958122167808629, 1.2230553530818344, 1.09768145162419, 1.0170188803281086,
               0.93187905516946, 0.8480535886371537, 0.7816349878165721, 0.7340685978095004, 0.6818211424303744,
               0.6258234950577372, 0.5736899397223475, 0.5267219538584722, 0.48016428949151707, 0.43404807053281286,
               0.3906782378979339, 0.35165934622581063, 0.31619836296852105, 0.2813555938589953, 0.24814891488611246],
    "targets": [2.775813408646771, 2.1720325424322113, 1.7091261716951474, 1.3545298336454226, 1.1420515340030273,
               1.0651978100470876, 1.0510137954183993, 1.0410190420407588, 1.0112394791591424, 0.9606740430181117,
               0.8983747377903509, 0.8335325126002586, 0.767855127805789, 0.6968373730608256, 0.6252626416706679,
               0.5613827376209507, 0.5089927409982877, 0.4673729146451768, 0.4351016054065598, 0.40665193647727876]}


def drawn(form, graph):
    """Parameters in the order in which the script that made EXPECTED drew them."""
    tensors = {}

    def draw(name, *shape):
        a, b = (1, shape[0]) if len(shape) == 1 else shape[-2:]
        scale, salt = math.sqrt(6 / (a + b)), len(tensors)
        tensors[name] = shape, [scale * math.sin(1 + 0.37 * k + 0.0113 * k * (k % 17) + 0.73 * salt) for k in range(math.prod(shape))]
    draw("features", COUNT, WIDTH)
    for name, rows in graph.features.items():
        for v, row in enumerate(rows):
            first = (OFFSETS[name] + v) * WIDTH
            tensors["features"][1][first:first + WIDTH] = row + [0.0] * (WIDTH - len(row))
    for layer, width in enumerate((WIDTH, HIDDEN)):
        for r in range(len(graph.relations())):
            name = f"convs.{layer}.convs.{r}."
            draw(name + "att_src", 1, HEADS, HEAD_WIDTH)
            draw(name + "att_dst", 1, HEADS, HEAD_WIDTH)
            draw(name + "bias", HIDDEN)
            for weight in ("lin_src", "lin_dst") if form == "targets" else ("lin",):
                draw(f"{name}{weight}.weight", HIDDEN, width)
    draw("lin.weight", NUM_CLASSES, HIDDEN)
    draw("lin.bias", NUM_CLASSES)
    return tensors


def made(scratch, form="shared", heads=HEADS, layers=2):
    """The graph as a store, and the parameters of two layers as a weights file."""
    path = lambda name: os.path.join(scratch, name)
    graph = Graph()
    graph.write_arrays(path("g"))
    expect_success(1, ["partition", "--input", path("g"), "--add-inverse", "--permute", "none", "-o", path("g.h5")])
    write_safetensors(path("w.safetensors"), {name: ("F64", list(shape), struct.pack(f"<{len(numbers)}d", *numbers))
                                              for name, (shape, numbers) in drawn(form, graph).items()})
    expect_success(1, ["import-weights", path("w.safetensors"), "-o", path("w.h5")])
    more = ["--target-weights"] if form == "targets" else []
    return path, ["train", "--graph", path("g.h5"), "--model", "rgat", "--heads", str(heads), "--layers", str(layers), "--hidden", str(HIDDEN),
                  "--activation", "leaky_relu", "--compute-dtype", "fp64", "--eval-every", "0", "--metrics", path("m.jsonl"), "--force", *more]


def losses_of(path):
    return [event["loss"] for event in events_of(path) if event["event"] == "epoch"]


def losses_are_those_of_pytorch_geometric(ranks, form):
    with tempfile.TemporaryDirectory() as scratch:
        path, train = made(scratch, form)
        for grid in GRIDS[ranks]:
            expect_success(ranks, [*train, "--init-from", path("w.h5"), "--dropout", "0", "--lr", "0.02", "--epochs", "20", "--grid", grid])
            require_close(losses_of(path("m.jsonl")), EXPECTED[form], f"{form} on {grid}", 1e-9)


def a_batch_of_all_vertices_is_the_graph(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        path, train = made(scratch)
        for grid in GRIDS[ranks]:
            expect_success(ranks, [*train, "--init-from", path("w.h5"), "--dropout", "0", "--lr", "0.02", "--epochs", "20", "--grid", grid,
                                   "--mode", "minibatch", "--batch", str(COUNT)])
            require_close(losses_of(path("m.jsonl")), EXPECTED["shared"], f"one batch on {grid}", 1e-9)


def grids_agree_with_dropout(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        path, train = made(scratch, layers=3)
        expect_success(1, ["partition", "--input", path("g"), "--add-inverse", "-o", path("g.h5"), "--force"])
        more = ["--dropout", "0.4", "--attention-dropout", "0.3", "--norm", "layer", "--residual", "project", "--target-weights", "--epochs", "20", "--lr", "0.002", "--jump", "cat"]
        for mode in ([], ["--prune", "on"], ["--mode", "minibatch", "--batch", "40"], ["--mode", "minibatch", "--batch", "30", "--sampler", "degree"]):
            expect_success(1, [*train, *more, *mode])
            expected = losses_of(path("m.jsonl"))
            for grid in GRIDS[ranks]:
                expect_success(ranks, [*train, *more, *mode, "--grid", grid])
                require_close(losses_of(path("m.jsonl")), expected, f"{grid}, {mode}")


def words_of_activations_do_not_grow_with_relations(ranks):
    """Bytes along each axis: those of the weights of R relations are known, and those of the softmax at most H numbers for each edge."""
    for grid in GRIDS[ranks]:
        _, x, y, z = map(int, grid.split("x"))
        sent = {}
        for num_relations in (1, 5, 40):
            with tempfile.TemporaryDirectory() as scratch:
                folder, *_ = graph_in(scratch, num_relations, 24)
                store, metrics = os.path.join(scratch, "g.h5"), os.path.join(scratch, "m.jsonl")
                expect_success(1, ["partition", "--input", folder, "-o", store])
                done = expect_success(ranks, ["train", "--graph", store, "--model", "rgat", "--heads", "2", "--layers", "2", "--hidden", "8",
                                              "--epochs", "1", "--dropout", "0", "--grid", grid, "--metrics", metrics, "--no-bias", "--eval-every", "0"])
                event = [event for event in events_of(metrics) if event["event"] == "epoch"][-1]
                sent[num_relations] = event["sent_bytes"]
                parameters = int(done.stdout.split(" parameters,")[0].split()[-1])
                sent[num_relations, "weights"] = 2 * 4 * parameters * (ranks - 1)  # gathered once, and gradients summed once
        edges = 24 * 40
        for count in (5, 40):
            more = sent[count] - sent[1] - (sent[count, "weights"] - sent[1, "weights"])
            most = 2 * 3 * 2 * (x - 1) * 4 * 2 * edges * y + 4 * 64 * 40 * ranks
            if not -4 * 64 * 40 * ranks <= more <= most:
                raise Failure(f"{grid}: {sent} bytes; the softmax of {count} relations may add {most}, not {more}")


def parameters_are_counted(_):
    """As MLPerf's reference model counts them, with one weight for both ends of an edge and with two."""
    graph = Graph()
    num_relations = len(graph.relations())
    with tempfile.TemporaryDirectory() as scratch:
        for form in ("shared", "targets"):
            path, train = made(os.path.join(scratch, form), form)
            done = expect_success(1, [*train, "--epochs", "1"])
            weights = 2 if form == "targets" else 1
            table = WIDTH * sum(count for count, width in TYPES.values() if width == 0)
            layers = sum(num_relations * (weights * i + 3) * HIDDEN for i in (WIDTH, HIDDEN))
            count = table + layers + (HIDDEN + 1) * NUM_CLASSES
            require(f", {count} parameters," in done.stdout, f"not {count} parameters", done)


def weights_are_read_again(ranks):
    for form in ("shared", "targets"):
        with tempfile.TemporaryDirectory() as scratch:
            path, train = made(scratch, form)
            expect_success(ranks, ["export-weights", path("w.h5"), "-o", path("back.safetensors")])
            given, back = (read_safetensors(path(name))[0] for name in ("w.safetensors", "back.safetensors"))
            if given != back:
                raise Failure(f"{form}: tensors differ after import and export")
            expect_success(ranks, [*train, "--dropout", "0", "--epochs", "3", "--save-weights", path("v.h5"), "--checkpoint", path("c")])
            expect_success(1, [*train, "--dropout", "0", "--epochs", "4", "--resume", path("c/latest")])
            resumed = losses_of(path("m.jsonl"))[-1]
            done = expect_success(1, ["evaluate", "--graph", path("g.h5"), "--weights", path("v.h5"), "--compute-dtype", "fp64",
                                      "--metrics", path("e.jsonl")])
            read = events_of(path("e.jsonl"))[-1]["train_loss"]
            require(abs(resumed - read) <= 1e-12, f"{resumed} and {read}", done)


def mistakes_are_named(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        path, train = made(scratch)
        expect_mistake(ranks, [*train, "--edge-dropout", "0.1"], "--edge-dropout is not built for --model rgat")
        expect_success(ranks, [*train, "--jump", "max", "--epochs", "0", "--save-weights", path("jumps.h5")])
        expect_mistake(ranks, ["export-weights", path("jumps.h5"), "-o", path("none.safetensors")], "outputs that jump, --jump max")
        train[train.index("--heads") + 1] = "4"
        expect_mistake(ranks, train, "--heads must divide --hidden")
        tensors = drawn("shared", Graph())
        for change, pattern in (({"convs.1.convs.0.bias": None}, r"convs\.1\.convs\.0|layer 1 has other parameters"),
                                ({"lin.weight": None}, "there is no 'lin.weight'"),
                                ({"convs.0.convs.1.att_src": ((1, 3, 2), [0.0] * 6)}, r"'convs\.0\.convs\.1\.att_src' has the shape \[1, 3, 2\]"),
                                ({"other": ((1,), [0.0])}, "'other' is no parameter of R-GAT")):
            changed = {name: value for name, value in (tensors | change).items() if value is not None}
            write_safetensors(path("w.safetensors"), {name: ("F64", list(shape), struct.pack(f"<{len(numbers)}d", *numbers))
                                                      for name, (shape, numbers) in changed.items()})
            expect_mistake(ranks, ["import-weights", path("w.safetensors"), "-o", path("none.h5")], pattern)


if __name__ == "__main__":
    asked = [int(word) for word in sys.argv[2:]]
    jobs = [(ranks, (losses_are_those_of_pytorch_geometric, form)) for ranks in asked or (1, 2, 4) for form in EXPECTED]
    jobs += [(ranks, (job,)) for job in (a_batch_of_all_vertices_is_the_graph, grids_agree_with_dropout) for ranks in asked or (2, 3, 4)]
    if not asked:
        jobs += [(4, (words_of_activations_do_not_grow_with_relations,)), (1, (parameters_are_counted,)), (2, (weights_are_read_again,)),
                 (3, (mistakes_are_named,))]
    sys.exit(attempt_all(jobs))
