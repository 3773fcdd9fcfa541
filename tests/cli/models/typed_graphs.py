#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training on graphs whose vertices have types: typed_graphs.py PROGRAM [RANKS ..]

Losses of 20 steps of Adam are those of the equations of arXiv 1703.06103 with a root and a bias for each type (OGB's R-GCN), or each relation (GraphSAGE per
relation), and a trained table for types without features: in fp64, on several grids, in both schedules. RANKS: compares losses on these numbers of ranks alone.
"""

import math
import os
import struct
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from plain_gcn import read_safetensors  # noqa: E402
from program import Failure, attempt_all, expect_success, require  # noqa: E402
from relational_training import GRIDS, RATE, SCHEDULES, Layer, events_of, plus, product, losses_of_layers, require_close, transposed, write_npy  # noqa: E402
from typed_inputs import NUM_CLASSES, OFFSETS, TYPES, Graph  # noqa: E402

HIDDEN, WIDTH = 6, 5
COUNT = sum(count for count, _ in TYPES.values())


class TypedLayer(Layer):
    """Q_i = sum_r 1 / c_ir sum_{j in N_r(i)} F_j W_r + sum_s (F_i W_s + b_s), s: the roots of vertex i, a list in `roots_of`."""

    def forward(self, rows):
        self.rows = rows
        result = [[0.0] * len(self.parts["bias"][0]) for _ in rows]
        for v, roots in enumerate(self.roots_of):
            for s in roots:
                result[v] = [sum(terms) for terms in zip(result[v], product([rows[v]], self.parts["root"][s])[0], self.parts["bias"][s])]
        for mean, weight in zip(self.means, self.weights()):
            result = plus(result, product(product(mean, rows), weight))
        return result

    def own_step(self, gradient):
        """The gradient by the input through the vertex itself, and those of roots and biases."""
        of_input = [[0.0] * len(self.rows[0]) for _ in self.rows]
        roots, biases = [], []
        for s, root in enumerate(self.parts["root"]):
            own = [v for v, others in enumerate(self.roots_of) if s in others]
            for v in own:
                of_input[v] = [x + y for x, y in zip(of_input[v], product([gradient[v]], transposed(root))[0])]
            roots.append(product(transposed([self.rows[v] for v in own]), [gradient[v] for v in own]))
            biases.append([sum(column) for column in zip(*(gradient[v] for v in own))])
        return of_input, {"root": roots, "bias": biases}


class Table(Layer):
    """Features, whose rows of the types without features are trained."""

    def __init__(self, rows, trained):
        self.steps, self.moments, self.rows, self.trained = 0, {}, rows, trained

    def step(self, gradient):
        self.steps += 1
        self.rows = [self.updated(("row", v), row, slope) if v in self.trained else row
                     for v, (row, slope) in enumerate(zip(self.rows, gradient))]


def losses_are_those_of_the_equations(ranks, form):
    graph = Graph()
    with tempfile.TemporaryDirectory() as scratch:
        path = lambda name: os.path.join(scratch, name)
        graph.write_arrays(path("g"))
        expect_success(1, ["partition", "--input", path("g"), "--add-inverse", "--permute", "none", "-o", path("natural.h5")])
        expect_success(1, ["partition", "--input", path("g"), "--add-inverse", "-o", path("g.h5")])
        share = ["--bases", "3"] if form == "bases" else []
        train = ["train", "--model", "rsage" if form == "sage" else "rgcn", "--layers", "2", "--hidden", str(HIDDEN), "--compute-dtype", "fp64", "--seed", "5", *share]
        # Without a step: the weights from which all others begin.
        expect_success(1, [*train, "--graph", path("natural.h5"), "--epochs", "1", "--lr", "1e-300", "--save-weights", path("w.h5"), "--dropout", "0"])
        expect_success(1, ["export-weights", path("w.h5"), "-o", path("w.safetensors")])
        lists = lambda value: [lists(part) for part in value] if isinstance(value, (list, tuple)) else value
        tensors = {name: lists(value) for name, value in read_safetensors(path("w.safetensors"))[0].items()}
        types = [t for t, name in enumerate(TYPES) for _ in range(TYPES[name][0])]
        rows = tensors.pop("features")
        for name, features in graph.features.items():
            for v, row in enumerate(features):
                wanted = row + [0.0] * (WIDTH - len(row))
                if any(abs(x - y) > 1e-15 for x, y in zip(rows[OFFSETS[name] + v], wanted)):
                    raise Failure(f"{name} {v} has {rows[OFFSETS[name] + v]}, not {wanted}")
        names = {name.replace("convs.", "layer"): value for name, value in tensors.items()}
        edges = [(s, r, t) for r, (_, pairs) in enumerate(graph.relations()) for s, t in pairs]
        layers = [TypedLayer(edges, COUNT, len(graph.relations()), names, number) for number in range(2)]
        of_types = [[t] for t in range(len(TYPES))]
        if form == "sage":  # the roots of relations into the type
            of_types = [[r for r, (relation, _) in enumerate(graph.relations()) if relation.endswith("__" + name)] for name in TYPES]
        for layer in layers:
            layer.roots_of = [of_types[t] for t in types]
        table = Table(rows, {v for v, t in enumerate(types) if not list(TYPES.values())[t][1]})
        first = OFFSETS["paper"]
        labels = [graph.labels[v - first] if v >= first else 0 for v in range(COUNT)]
        expected = losses_of_layers(layers, rows, labels, {first + v for v in graph.split["train"]}, 20, table)
        for grid in GRIDS[ranks]:
            for schedule in SCHEDULES:
                metrics = path(f"{grid}-{schedule}.jsonl")
                expect_success(ranks, [*train, "--graph", path("g.h5"), "--epochs", "20", "--lr", str(RATE), "--dropout", "0", "--grid", grid,
                                       "--schedule", schedule, "--metrics", metrics])
                found = [event["loss"] for event in events_of(metrics) if event["event"] == "epoch"]
                require_close(found, expected, f"{form} on {grid}, {schedule}")


def grids_agree_with_dropout(ranks):
    graph = Graph()
    with tempfile.TemporaryDirectory() as scratch:
        path = lambda name: os.path.join(scratch, name)
        graph.write_arrays(path("g"))
        for permute in ("double", "single"):
            expect_success(1, ["partition", "--input", path("g"), "--add-inverse", "--permute", permute, "-o", path(f"{permute}.h5")])

        def losses(count, grid, schedule, store="double.h5"):
            metrics = path(f"{count}-{grid}-{schedule}-{store}.jsonl")
            expect_success(count, ["train", "--graph", path(store), "--model", "rgcn", "--compute-dtype", "fp64", "--hidden", "8", "--dropout", "0.4",
                                   "--norm", "layer", "--residual", "project", "--blocks", "2", "--epochs", "20", "--grid", grid, "--schedule", schedule,
                                   "--metrics", metrics])
            return [event["loss"] for event in events_of(metrics) if event["event"] == "epoch"]
        expected = losses(1, "1x1x1x1", "rows")
        for grid in GRIDS[ranks]:
            for schedule in SCHEDULES:
                require_close(losses(ranks, grid, schedule), expected, f"{grid}, {schedule}")
            require_close(losses(ranks, grid, "pmm3d", "single.h5"), expected, f"{grid}, one order")


def parameters_are_counted(_):
    """As of ogbn-mag's published R-GCN: the table, W_r of all relations, roots and biases of all types."""
    graph = Graph()
    with tempfile.TemporaryDirectory() as scratch:
        path = lambda name: os.path.join(scratch, name)
        graph.write_arrays(path("g"))
        expect_success(1, ["partition", "--input", path("g"), "--add-inverse", "-o", path("g.h5")])
        done = expect_success(1, ["train", "--graph", path("g.h5"), "--model", "rgcn", "--layers", "2", "--hidden", str(HIDDEN), "--epochs", "1"])
        table = WIDTH * sum(count for count, width in TYPES.values() if width == 0)
        per_layer = [len(graph.relations()) * i * o + len(TYPES) * (i + 1) * o for i, o in ((WIDTH, HIDDEN), (HIDDEN, NUM_CLASSES))]
        require(f", {table + sum(per_layer)} parameters," in done.stdout, f"not {table + sum(per_layer)} parameters", done)
        require("table     a trained row for each of 17 author, 4 inst, which have no features" in done.stdout, "does not tell of the table", done)


def targets_of_one_type_are_trained(ranks):
    """Two targets of each paper, of which some have none: losses are equal on all grids, and the mean over the predictions of papers alone."""
    graph = Graph()
    count = len(graph.labels)
    targets = [[math.nan if (v + t) % 7 == 0 else math.sin(v + t) for t in range(2)] for v in range(count)]
    with tempfile.TemporaryDirectory() as scratch:
        path = lambda name: os.path.join(scratch, name)
        graph.write_arrays(path("g"))
        write_npy(path("g/paper/y.npy"), (count, 2), "d", [number for row in targets for number in row])
        done = expect_success(1, ["partition", "--input", path("g"), "--add-inverse", "-o", path("g.h5")])
        require("y.npy has numbers that are not integers: targets of regression" in done.stderr + done.stdout, "does not say that these are targets", done)
        train = ["train", "--graph", path("g.h5"), "--model", "rgcn", "--layers", "2", "--hidden", "8", "--dropout", "0.2", "--compute-dtype", "fp64",
                 "--lr", "0.02", "--epochs", "20", "--eval-every", "20", "--metrics", path("m.jsonl"), "--force", "--save-weights", path("w.h5")]

        def losses(ranks, *words):
            expect_success(ranks, [*train, *words])
            return [event["loss"] for event in events_of(path("m.jsonl")) if event["event"] == "epoch"]
        expected = losses(1)
        require(expected[-1] < 0.8 * expected[0], f"does not learn: {expected}", done)
        for grid in GRIDS[ranks]:
            require_close(losses(ranks, "--grid", grid), expected, f"targets on {grid}")
        expect_success(ranks, ["evaluate", "--graph", path("g.h5"), "--weights", path("w.h5"), "--compute-dtype", "fp64", "--predictions", path("p.npy"),
                               "--metrics", path("e.jsonl")])
        with open(path("p.npy"), "rb") as file:
            data = file.read()
        predicted = struct.unpack(f"<{2 * COUNT}d", data[10 + struct.unpack("<H", data[8:10])[0]:])
        first = OFFSETS["paper"]
        errors = [(predicted[2 * (first + v) + t] - targets[v][t]) ** 2 for v in graph.split["train"] for t in range(2) if targets[v][t] == targets[v][t]]
        found = events_of(path("e.jsonl"))[-1]["train_loss"]
        require(abs(found - sum(errors) / len(errors)) < 1e-9, f"{found}, and {sum(errors) / len(errors)} of the predictions", done)


def weights_are_read_again(ranks):
    graph = Graph()
    with tempfile.TemporaryDirectory() as scratch:
        path = lambda name: os.path.join(scratch, name)
        graph.write_arrays(path("g"))
        expect_success(1, ["partition", "--input", path("g"), "--add-inverse", "-o", path("g.h5")])
        train = ["train", "--graph", path("g.h5"), "--model", "rgcn", "--layers", "2", "--hidden", "8", "--dropout", "0", "--compute-dtype", "fp64",
                 "--eval-every", "0"]
        expect_success(ranks, [*train, "--schedule", "pmm3d", "--epochs", "5", "--save-weights", path("w.h5")])
        done = expect_success(1, ["evaluate", "--graph", path("g.h5"), "--weights", path("w.h5"), "--compute-dtype", "fp64", "--metrics", path("e.jsonl")])
        read = events_of(path("e.jsonl"))[-1]["train_loss"]
        # The loss of the next step, which begins with these weights.
        expect_success(ranks, [*train, "--epochs", "6", "--metrics", path("m.jsonl"), "--force"])
        trained = [event["loss"] for event in events_of(path("m.jsonl")) if event["event"] == "epoch"][-1]
        require(abs(trained - read) <= 1e-12, f"{trained} and {read}", done)
        expect_success(1, [*train, "--epochs", "1", "--metrics", path("m.jsonl"), "--force", "--init-from", path("w.h5"), "--schedule", "rows"])
        expect_success(1, ["export-weights", path("w.h5"), "-o", path("w.safetensors")])
        expect_success(1, ["import-weights", path("w.safetensors"), "-o", path("back.h5")])
        expect_success(ranks, ["evaluate", "--graph", path("g.h5"), "--weights", path("back.h5"), "--compute-dtype", "fp64", "--metrics", path("b.jsonl")])
        back = events_of(path("b.jsonl"))[-1]["train_loss"]
        require(abs(back - read) <= 1e-12, f"{back} and {read} after export and import", done)
        again = [event["loss"] for event in events_of(path("m.jsonl")) if event["event"] == "epoch"]
        require(abs(again[0] - read) <= 1e-12, f"{again} and {read}", done)
        done = expect_success(1, ["info", path("w.h5")])
        require("roots" in done.stdout and "features" in done.stdout, "does not show them", done)


if __name__ == "__main__":
    asked = [int(word) for word in sys.argv[2:]]
    jobs = [(ranks, (losses_are_those_of_the_equations, form)) for ranks in asked or (1, 2, 4) for form in ("full", "bases", "sage")]
    jobs += [(ranks, (grids_agree_with_dropout,)) for ranks in asked or (2, 3, 4)]
    if not asked:
        jobs += [(1, (parameters_are_counted,)), (2, (weights_are_read_again,)), (2, (targets_of_one_type_are_trained,)), (4, (targets_of_one_type_are_trained,))]
    sys.exit(attempt_all(jobs))
