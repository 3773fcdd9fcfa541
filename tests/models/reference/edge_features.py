#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GAT and GATv2 with features of edges, by PyTorch Geometric in double: edge_features.py > edge_features.json

A directed graph with self loops and a vertex without edges; three layers, three features of an edge, four heads, and two of the logits. The parameters
are those of formula_parameters.hpp, in the order of the program's list. Losses of five steps of Adam, and all gradients of the first and the last.
"""

import json
import math
import random

import torch
from torch.nn import functional
from torch_geometric.nn import GATConv, GATv2Conv

VERTICES, FEATURES, EDGE_FEATURES, CLASSES = 23, 5, 3, 4
HEADS, OUTPUT_HEADS, HIDDEN, LAYERS, STEPS, RATE = 4, 2, 8, 3, 5, 0.01


def graph():
    draw = random.Random(5)
    pairs = [(u, v) for u in range(VERTICES - 1) for v in range(VERTICES - 1)]  # the last one has no edges
    edges = sorted(draw.sample([pair for pair in pairs if pair[0] != pair[1]], 80)) + [(v, v) for v in (0, 3, 8, 21)]
    draw.shuffle(edges)
    eighths = lambda count: [draw.randrange(-16, 17) / 8 for _ in range(count)]
    return {
        "vertices": VERTICES,
        "sources": [u for u, _ in edges],
        "targets": [v for _, v in edges],
        "edge_features": eighths(len(edges) * EDGE_FEATURES),
        "features": eighths(VERTICES * FEATURES),
        "labels": [draw.randrange(CLASSES) for _ in range(VERTICES)],
        "train": sorted(draw.sample(range(VERTICES), 15)),
    }


def formula(number, rows, columns, is_vector):
    """Parameter `number` of formula_parameters.hpp, [rows x columns]."""

    def element(i, j):
        k = (31 * i * i + 6007 * i * j + 7919 * i + 38183 * j + 104729 * number + 12345) % 100003
        u = 2 * k / 100003 - 1
        return u / 8 if is_vector else math.sqrt(6 / (rows + columns)) * u

    return torch.tensor([[element(i, j) for j in range(columns)] for i in range(rows)], dtype=torch.float64)


class Layer(torch.nn.Module):
    """A layer with the program's parameters, which are set before each use of PyTorch Geometric's."""

    def __init__(self, model, index, first):
        super().__init__()
        width = HIDDEN if index > 0 else FEATURES
        is_last = index == LAYERS - 1
        heads, columns = (OUTPUT_HEADS, CLASSES) if is_last else (HEADS, HIDDEN // HEADS)
        kind = GATv2Conv if model == "gatv2" else GATConv
        self.conv = kind(width, columns, heads, concat=not is_last, edge_dim=EDGE_FEATURES).double()
        self.is_dynamic = model == "gatv2"
        self.all = heads * columns
        shapes = {"weight": (width, self.all * (2 if self.is_dynamic else 1)), "bias": (1, columns if is_last else self.all),
                  "attention": (heads, columns * (1 if self.is_dynamic else 2)), "edge_weight": (EDGE_FEATURES, self.all)}
        if not self.is_dynamic:
            shapes["edge_attention"] = (heads, columns)
        self.names = [f"layer{index}.{name}" for name in shapes]
        self.own = torch.nn.ParameterList(
            torch.nn.Parameter(formula(first + i, *shape, name == "bias")) for i, (name, shape) in enumerate(shapes.items()))

    def forward(self, x, edges, edge_features):
        weight, bias, attention, edge_weight, *edge_attention = self.own
        d = self.conv.out_channels
        values = {"bias": bias[0], "lin_edge.weight": edge_weight.T}
        if self.is_dynamic:
            zero = torch.zeros(self.all, dtype=torch.float64)
            values |= {"lin_l.weight": weight[:, : self.all].T, "lin_r.weight": weight[:, self.all :].T, "lin_l.bias": zero, "lin_r.bias": zero,
                       "att": attention[None]}
        else:
            values |= {"lin.weight": weight.T, "att_dst": attention[None, :, :d], "att_src": attention[None, :, d:], "att_edge": edge_attention[0][None]}
        assert set(values) == {name for name, _ in self.conv.named_parameters()}, list(self.conv.state_dict())
        return torch.func.functional_call(self.conv, values, (x, edges, edge_features))


def figures(model, data):
    layers = []
    for index in range(LAYERS):
        layers.append(Layer(model, index, sum(len(layer.names) for layer in layers)))
    names = [name for layer in layers for name in layer.names]
    parameters = [parameter for layer in layers for parameter in layer.own]
    double = lambda name, columns: torch.tensor(data[name], dtype=torch.float64).reshape(-1, columns)
    edges = torch.tensor([data["sources"], data["targets"]])
    labels, train = torch.tensor(data["labels"]), torch.tensor(data["train"])
    adam = torch.optim.Adam(parameters, lr=RATE)
    losses, gradients = [], []
    for _ in range(STEPS):
        x = double("features", FEATURES)
        for index, layer in enumerate(layers):
            x = layer(x if index == 0 else functional.relu(x), edges, double("edge_features", EDGE_FEATURES))
        loss = functional.cross_entropy(x[train], labels[train])
        adam.zero_grad()
        loss.backward()
        losses.append(loss.item())
        gradients.append({name: parameter.grad.flatten().tolist() for name, parameter in zip(names, parameters)})
        adam.step()
    return {"losses": losses, "first": gradients[0], "last": gradients[-1]}


def main():
    data = graph()
    print(json.dumps({"graph": data} | {model: figures(model, data) for model in ("gat", "gatv2")}, separators=(",", ":")))


if __name__ == "__main__":
    main()
