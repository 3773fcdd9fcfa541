#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--model rgcn on graphs with relations: relational_training.py PROGRAM [RANKS ..]

Losses of 20 epochs of two layers must be those of a plain computation here, from the equations of arXiv 1703.06103, and, where
ORTHANT_DATA has it, those of PyTorch Geometric on UMLS. Both in fp64, on several grids, in both schedules, from a safetensors file.
RANKS, such as 5 6 7 8 12: compares losses on these numbers of ranks alone.
"""

import json
import math
import os
import random
import struct
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from plain_gcn import softmax, write_safetensors  # noqa: E402
from program import Failure, attempt_all, expect_mistake, expect_success, require, run  # noqa: E402

GRIDS = {1: ["1x1x1x1"], 2: ["1x2x1x1", "1x1x2x1", "1x1x1x2"], 3: ["1x3x1x1", "1x1x3x1", "1x1x1x3"],
         4: ["1x2x2x1", "1x2x1x2", "1x1x2x2", "1x4x1x1"], 5: ["1x5x1x1", "1x1x1x5"], 6: ["1x3x2x1", "1x1x2x3"],
         7: ["1x1x7x1", "1x1x1x7"], 8: ["1x2x2x2", "1x1x4x2"], 9: ["1x3x1x3"], 12: ["1x3x2x2", "1x1x3x4"]}
SCHEDULES = ("pmm3d", "rows")
RATE = 0.02
BETAS = (0.9, 0.999)
NUM_RELATIONS = 3
WIDTHS = [6, 8, 4]


# The reference: matrices are lists of rows.

def product(a, b):
    return [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]


def transposed(a):
    return [list(column) for column in zip(*a)]


def plus(a, b):
    return [[x + y for x, y in zip(*rows)] for rows in zip(a, b)]


class Layer:
    """Q_i = sum_r 1 / c_ir sum_{j in N_r(i)} F_j W_r + F_i W_0 + b, with W_r full, of bases, or block-diagonal."""

    def __init__(self, edges, count, num_relations, tensors, number):
        self.steps, self.moments = 0, {}
        self.parts = {name.split(".")[1]: value for name, value in tensors.items() if name.startswith(f"layer{number}.")}
        self.means = []  # [relations] row i: the share of each neighbor
        for r in range(num_relations):
            rows = [[0.0] * count for _ in range(count)]
            for source, relation, target in edges:
                if relation == r:
                    rows[target][source] = 1.0
            self.means.append([[x / sum(row) if sum(row) else 0.0 for x in row] for row in rows])

    def weights(self):
        weight = self.parts["weight"]
        if "comp" in self.parts:
            return [[[sum(a * basis[i][j] for a, basis in zip(shares, weight)) for j in range(len(weight[0][0]))]
                     for i in range(len(weight[0]))] for shares in self.parts["comp"]]
        if isinstance(weight[0][0][0], float):
            return weight
        full = []
        for blocks in weight:
            rows, columns = len(blocks[0]), len(blocks[0][0])
            full.append([[blocks[i // rows][i % rows][j % columns] if i // rows == j // columns else 0.0
                          for j in range(columns * len(blocks))] for i in range(rows * len(blocks))])
        return full

    def updated(self, place, value, slope):
        """Of one step of Adam. `place`: of the numbers among all."""
        if isinstance(value, list):
            return [self.updated((place, k), *both) for k, both in enumerate(zip(value, slope))]
        mean, square = self.moments.get(place, (0.0, 0.0))
        mean, square = mean + (1 - BETAS[0]) * (slope - mean), square + (1 - BETAS[1]) * (slope * slope - square)
        self.moments[place] = mean, square
        of_square = math.sqrt(square / (1 - BETAS[1] ** self.steps))
        return value - RATE * mean / (1 - BETAS[0] ** self.steps) / (of_square + 1e-8)

    def forward(self, rows):
        self.rows = rows
        result = [[x + b for x, b in zip(row, self.parts["bias"])] for row in product(rows, self.parts["root"])]
        for mean, weight in zip(self.means, self.weights()):
            result = plus(result, product(product(mean, rows), weight))
        return result

    def own_step(self, gradient):
        """The gradient by the input through the vertex itself, and those of root and bias."""
        gradients = {"root": product(transposed(self.rows), gradient), "bias": [sum(column) for column in zip(*gradient)]}
        return product(gradient, transposed(self.parts["root"])), gradients

    def step(self, gradient):
        """One step of Adam; the gradient by the input."""
        of_input, gradients = self.own_step(gradient)
        of_weights = []
        for mean, weight in zip(self.means, self.weights()):
            of_weights.append(product(transposed(product(mean, self.rows)), gradient))
            of_input = plus(of_input, product(transposed(mean), product(gradient, transposed(weight))))
        weight = self.parts["weight"]
        dot = lambda a, b: sum(x * y for row, other in zip(a, b) for x, y in zip(row, other))
        if "comp" in self.parts:
            comp = self.parts["comp"]
            gradients["comp"] = [[dot(of_one, basis) for basis in weight] for of_one in of_weights]
            gradients["weight"] = [[[sum(shares[b] * of_one[i][j] for shares, of_one in zip(comp, of_weights))
                                     for j in range(len(weight[0][0]))] for i in range(len(weight[0]))]
                                   for b in range(len(weight))]
        elif isinstance(weight[0][0][0], float):
            gradients["weight"] = of_weights
        else:
            rows, columns = len(weight[0][0]), len(weight[0][0][0])
            gradients["weight"] = [[[of_one[k * rows + i][k * columns:(k + 1) * columns] for i in range(rows)]
                                    for k in range(len(weight[0]))] for of_one in of_weights]
        self.steps += 1
        for name, slope in gradients.items():
            self.parts[name] = self.updated(name, self.parts[name], slope)
        return of_input


def losses_of(edges, features, labels, train, num_relations, tensors, epochs):
    layers = [Layer(edges, len(features), num_relations, tensors, number) for number in range(2)]
    return losses_of_layers(layers, features, labels, train, epochs)


def losses_of_layers(layers, features, labels, train, epochs, table=None):
    """`table`: trains the features, of which it has the rows."""
    losses = []
    for _ in range(epochs):
        features = table.rows if table else features
        hidden = layers[0].forward(features)
        logits = layers[1].forward([[max(x, 0.0) for x in row] for row in hidden])
        shares = [softmax(row) for row in logits]
        losses.append(-sum(math.log(shares[v][labels[v]]) for v in train) / len(train))
        gradient = [[(p - (c == labels[v])) / len(train) if v in train else 0.0 for c, p in enumerate(row)]
                    for v, row in enumerate(shares)]
        gradient = layers[1].step(gradient)
        gradient = layers[0].step([[g if x > 0 else 0.0 for g, x in zip(*rows)] for rows in zip(gradient, hidden)])
        if table:
            table.step(gradient)
    return losses


# Files

def shape_of(value):
    return [len(value), *shape_of(value[0])] if isinstance(value, list) else []


def flat(value):
    return [x for part in value for x in flat(part)] if isinstance(value, list) else [value]


def write_weights(path, tensors):
    write_safetensors(path, {name: ("F64", shape_of(value), struct.pack(f"<{len(flat(value))}d", *flat(value)))
                             for name, value in tensors.items()})


def write_npy(path, shape, letter, values):
    descr = {"d": "<f8", "f": "<f4", "q": "<i8", "?": "|b1"}[letter]
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * ((-len(text) - 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\0" + struct.pack("<H", len(text)) + text.encode())
        file.write(struct.pack(f"<{len(values)}{letter}", *values))


def graph_in(scratch, num_relations=NUM_RELATIONS, count=21):
    """A folder and its numbers: edges (source, relation, target) in both directions, features, labels, training vertices."""
    draw = random.Random(f"relations {num_relations}")
    folder = os.path.join(scratch, "graph")
    os.makedirs(folder)
    triples = {(v, draw.randrange(num_relations), (v + 1) % count) for v in range(count)}
    triples |= {(draw.randrange(count), r, draw.randrange(count)) for r in range(num_relations) for _ in range(12)}
    triples |= {(4, 0, 4), (0, num_relations - 1, 1)}
    triples = sorted(triples, key=lambda triple: draw.random())
    order, names = [], []  # by first appearance
    for source, relation, target in triples:
        order += [v for v in dict.fromkeys((source, target)) if v not in order]
        names += [relation] if relation not in names else []
    with open(os.path.join(folder, "triples.tsv"), "w", encoding="utf-8") as file:
        file.writelines(f"vertex {s}\trelation {r}\tvertex {t}\n" for s, r, t in triples)
    edges = [(order.index(s), names.index(r), order.index(t)) for s, r, t in triples]
    edges += [(target, relation + len(names), source) for source, relation, target in edges]
    features = [[draw.uniform(-1, 1) for _ in range(WIDTHS[0])] for _ in order]  # no fp32 numbers
    labels = [draw.randrange(WIDTHS[-1]) for _ in order]
    train = set(range(0, len(order), 2))
    write_npy(os.path.join(folder, "x.npy"), (len(order), WIDTHS[0]), "d", flat(features))
    write_npy(os.path.join(folder, "y.npy"), (len(order),), "q", labels)
    write_npy(os.path.join(folder, "train_mask.npy"), (len(order),), "?", [v in train for v in range(len(order))])
    return folder, edges, features, labels, train


def drawn_tensors(form, num_relations):
    draw = random.Random(form)
    array = lambda *shape: [array(*shape[1:]) for _ in range(shape[0])] if shape else draw.uniform(-0.5, 0.5)
    tensors = {}
    for number, (rows, columns) in enumerate(zip(WIDTHS, WIDTHS[1:])):
        shape = {"full": [num_relations, rows, columns], "bases": [2, rows, columns],
                 "blocks": [num_relations, 2, rows // 2, columns // 2]}[form]
        tensors[f"layer{number}.weight"] = array(*shape)
        if form == "bases":
            tensors[f"layer{number}.comp"] = array(num_relations, 2)
        tensors[f"layer{number}.root"] = array(rows, columns)
        tensors[f"layer{number}.bias"] = array(columns)
    return tensors


def events_of(metrics):
    with open(metrics, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def trained(ranks, grid, schedule, store, scratch, *options):
    metrics = os.path.join(scratch, f"{ranks}-{grid}-{schedule}.jsonl")
    expect_success(ranks, ["train", "--graph", store, "--model", "rgcn", "--grid", grid, "--schedule", schedule, "--compute-dtype",
                           "fp64", "--layers", "2", "--metrics", metrics, *options])
    return [event["loss"] for event in events_of(metrics) if event["event"] == "epoch"]


def require_close(found, expected, what, tolerance=1e-10):
    if len(found) != len(expected) or any(not abs(x - y) <= tolerance for x, y in zip(found, expected)):
        raise Failure(f"{what}: {found}, expected {expected}")


def losses_are_those_of_the_equations(ranks, form):
    with tempfile.TemporaryDirectory() as scratch:
        path = lambda name: os.path.join(scratch, name)
        folder, edges, features, labels, train = graph_in(scratch)
        expect_success(1, ["partition", "--input", folder, "--add-inverse", "-o", path("g.h5")])
        tensors = drawn_tensors(form, 2 * NUM_RELATIONS)
        write_weights(path("w.safetensors"), tensors)
        expect_success(1, ["import-weights", path("w.safetensors"), "-o", path("w.h5")])
        expected = losses_of(edges, features, labels, train, 2 * NUM_RELATIONS, tensors, 20)
        share = {"full": [], "bases": ["--bases", "2"], "blocks": ["--blocks", "2"]}[form]
        for grid in GRIDS[ranks]:
            for schedule in SCHEDULES:
                found = trained(ranks, grid, schedule, path("g.h5"), scratch, "--hidden", str(WIDTHS[1]), "--dropout", "0",
                                "--lr", str(RATE), "--epochs", "20", "--init-from", path("w.h5"), *share)
                require_close(found, expected, f"{form} on {grid}, {schedule}")


def grids_agree_with_dropout(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        folder, *_ = graph_in(scratch)
        store = os.path.join(scratch, "g.h5")
        expect_success(1, ["partition", "--input", folder, "--add-inverse", "-o", store])
        options = ["--hidden", "8", "--dropout", "0.4", "--norm", "layer", "--residual", "project", "--bases", "2", "--epochs", "20"]
        batches = ["--mode", "minibatch", "--batch", "8"]
        for number, mode in enumerate(([], batches, [*batches, "--sampler", "degree"])):
            os.mkdir(folder := os.path.join(scratch, f"mode{number}"))
            expected = trained(1, "1x1x1x1", "rows", store, folder, *options, *mode)
            for grid in GRIDS[ranks]:
                for schedule in SCHEDULES:
                    prune = ["--prune", "on"] if not mode and schedule == "rows" else []
                    require_close(trained(ranks, grid, schedule, store, folder, *options, *mode, *prune), expected, f"{grid}, {schedule}, {mode}")


def umls_is_that_of_pytorch_geometric(ranks, case, root):
    with open(os.path.join(root, "reference", "rgcn_umls.json"), encoding="utf-8") as file:
        reference = json.load(file)
    wanted = next(found for found in reference["cases"] if found["name"] == case)
    with tempfile.TemporaryDirectory() as scratch:
        path = lambda name: os.path.join(scratch, name)
        os.makedirs(path("g"))
        with open(os.path.join(root, "datasets", "umls", "train.txt"), encoding="utf-8") as file:
            text = file.read()
        with open(path("g/triples.tsv"), "w", encoding="utf-8") as file:
            file.write(text)
        count = reference["vertices"]
        features = [((13 * i * i + 29 * i * j + 37 * j + 11) % 1009) / 1009 for i in range(count) for j in range(16)]
        write_npy(path("g/x.npy"), (count, 16), "d", features)
        write_npy(path("g/y.npy"), (count,), "q", [(7 * i * i + 3 * i) % 5 for i in range(count)])
        write_npy(path("g/train_mask.npy"), (count,), "?", [i % 2 == 0 for i in range(count)])
        expect_success(1, ["partition", "--input", path("g"), "--add-inverse", "-o", path("g.h5")])
        tensors = {}
        for name, shape, salt in wanted["parameters"]:
            a, b = (1, shape[0]) if len(shape) == 1 else shape[-2:]
            scale = math.sqrt(6 / (a + b))
            numbers = [scale * math.sin(1 + 0.37 * k + 0.0113 * k * (k % 17) + 0.73 * salt) for k in range(math.prod(shape))]
            tensors[name] = ("F64", shape, struct.pack(f"<{len(numbers)}d", *numbers))
        write_safetensors(path("w.safetensors"), tensors)
        expect_success(1, ["import-weights", path("w.safetensors"), "-o", path("w.h5")])
        share = {"full": [], "basis": ["--bases", "3"], "block": ["--blocks", "4"]}[case]
        for grid in GRIDS[ranks]:
            for schedule in SCHEDULES:
                found = trained(ranks, grid, schedule, path("g.h5"), scratch, "--hidden", "12", "--dropout", "0", "--lr", "0.01",
                                "--epochs", "20", "--init-from", path("w.h5"), *share)
                require_close(found, wanted["train_loss"], f"{case} on {grid}, {schedule}", 1e-9)


def words_do_not_grow_with_relations(ranks):
    """Bytes of an epoch less those of the weights, with 1, 5 and 40 relations."""
    for grid in GRIDS[ranks]:
        for schedule in SCHEDULES:
            sent = {}
            for num_relations in (1, 5, 40):
                with tempfile.TemporaryDirectory() as scratch:
                    folder, *_ = graph_in(scratch, num_relations, 24)
                    store, metrics = os.path.join(scratch, "g.h5"), os.path.join(scratch, "m.jsonl")
                    expect_success(1, ["partition", "--input", folder, "-o", store])
                    expect_success(ranks, ["train", "--graph", store, "--model", "rgcn", "--layers", "2", "--hidden", "8", "--epochs", "1",
                                           "--dropout", "0", "--grid", grid, "--schedule", schedule, "--metrics", metrics,
                                           "--bases", "1", "--no-bias"])
                    sent[num_relations] = [event for event in events_of(metrics) if event["event"] == "epoch"][-1]["sent_bytes"]
            # With one basis only comp, R numbers a layer, grows: padded to the ranks, gathered and reduced.
            growth = {count: sent[count] - sent[1] for count in (5, 40)}
            for count, more in growth.items():
                most = 2 * 2 * 4 * (count + 2 * ranks) * 2 * ranks
                if not 0 <= more <= most:
                    raise Failure(f"{grid}, {schedule}: {sent} bytes; {count} relations may add {most}")


def mistakes_are_named(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        path = lambda name: os.path.join(scratch, name)
        folder, *_ = graph_in(scratch)
        expect_success(1, ["partition", "--input", folder, "-o", path("g.h5")])
        expect_success(1, ["partition", "--generate", "sbm", "--vertices", "30", "--edges", "60", "-o", path("plain.h5")])
        train = ["train", "--model", "rgcn", "--epochs", "1", "--graph"]
        expect_mistake(ranks, [*train, path("plain.h5")], "--model rgcn needs a graph with relations")
        expect_mistake(ranks, [*train, path("g.h5"), "--bases", "2", "--blocks", "2"], "--bases and --blocks are two ways")
        expect_mistake(ranks, [*train, path("g.h5"), "--bases", "4"], "--bases 4 for 3 relations shares nothing")
        expect_mistake(ranks, [*train, path("g.h5"), "--hidden", "8", "--blocks", "5"], "--blocks 5 divides the widths of no layer")
        tensors = drawn_tensors("full", NUM_RELATIONS)
        for change, pattern in (({"layer1.root": None}, "there is no layer1.root"),
                                ({"layer0.bias": [0.0] * 3}, r"'layer0.bias' has the shape \[3\]; .* it is \[8\]"),
                                ({"layer0.other": [0.0]}, "'layer0.other' is no parameter of R-GCN")):
            changed = {name: value for name, value in (tensors | change).items() if value is not None}
            write_weights(path("w.safetensors"), changed)
            expect_mistake(ranks, ["import-weights", path("w.safetensors"), "-o", path("w.h5")], pattern)
        write_weights(path("w.safetensors"), drawn_tensors("full", NUM_RELATIONS + 1))
        expect_success(1, ["import-weights", path("w.safetensors"), "-o", path("w.h5")])
        done = run(ranks, [*train, path("g.h5"), "--layers", "2", "--hidden", "8", "--init-from", path("w.h5")])
        require(done.returncode == 2 and "/parameters/layer0.weight has shape 24 x 8, but the model needs 18 x 8" in done.stderr,
                "takes weights of other relations", done)


def weights_go_to_pytorch_geometric_and_back(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        path = lambda name: os.path.join(scratch, name)
        folder, *_ = graph_in(scratch)
        expect_success(1, ["partition", "--input", folder, "-o", path("g.h5")])
        for share in ([], ["--bases", "2"], ["--blocks", "2"]):
            expect_success(ranks, ["train", "--graph", path("g.h5"), "--model", "rgcn", "--layers", "2", "--hidden", "8", "--epochs", "3",
                                   "--compute-dtype", "fp64", "--save-weights", path("w.h5"), "--force", *share])
            expect_success(ranks, ["export-weights", path("w.h5"), "-o", path("w.safetensors"), "--force"])
            expect_success(ranks, ["import-weights", path("w.safetensors"), "-o", path("back.h5"), "--force"])
            done = expect_success(ranks, ["info", path("back.h5")])
            require(not share or f", {share[1]} {share[0][2:]}" in done.stdout, f"does not know {share}", done)
            losses = []
            for weights in ("w.h5", "back.h5"):
                done = expect_success(ranks, ["evaluate", "--graph", path("g.h5"), "--weights", path(weights), "--compute-dtype", "fp64",
                                              "--metrics", path(f"{weights}.jsonl"), "--force"])
                losses.append(events_of(path(f"{weights}.jsonl"))[-1]["train_loss"])
            require(losses[0] == losses[1], f"losses differ: {losses}", done)


if __name__ == "__main__":
    FORMS, CASES = ("full", "bases", "blocks"), ("full", "basis", "block")
    asked = [int(word) for word in sys.argv[2:]]
    jobs = [(ranks, (losses_are_those_of_the_equations, form)) for ranks in asked or (1, 2, 4) for form in FORMS]
    jobs += [(ranks, (grids_agree_with_dropout,)) for ranks in asked or (2, 3, 4)]
    if not asked:
        jobs += [(4, (words_do_not_grow_with_relations,)), (3, (mistakes_are_named,)), (2, (weights_go_to_pytorch_geometric_and_back,))]
    data = os.environ.get("ORTHANT_DATA", "")
    if os.path.exists(os.path.join(data, "reference", "rgcn_umls.json")):
        jobs += [(ranks, (umls_is_that_of_pytorch_geometric, case, data)) for ranks in asked or (1, 3, 4) for case in CASES]
    else:
        print("skipped the losses of UMLS: ORTHANT_DATA names no folder with reference/rgcn_umls.json")
    sys.exit(attempt_all(jobs))
