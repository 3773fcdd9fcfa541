#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""RGATConv of PyTorch Geometric in double, as --model rgat has it: rgat_conv.py > rgat_conv.json

Two layers with a softmax within each relation, additive scores, one head and dim 1, and a linear layer behind them. The program has attention
vectors and a bias for each relation: all relations get q and k, and shares of the bias. Then the gradients of q and k are the sums of the
relations' gradients, and each relation has the gradient of the bias.
"""

import json
import random

import torch
from torch.nn import functional
from torch_geometric.nn import RGATConv

VERTICES, RELATIONS, FEATURES, HIDDEN, CLASSES = 19, 3, 5, 6, 4


def graph():
    draw = random.Random(7)
    triples = {(v, draw.randrange(RELATIONS), (v + 1) % VERTICES) for v in range(VERTICES)} | {(4, 0, 4), (9, 2, 9)}
    while len(triples) < 70:
        triples.add((draw.randrange(VERTICES), draw.randrange(RELATIONS), draw.randrange(VERTICES)))
    triples = sorted(triples)
    draw.shuffle(triples)
    # Vertices and relations are numbered in the order of first appearance.
    vertices = list(dict.fromkeys(v for s, _, t in triples for v in (s, t)))
    relations = list(dict.fromkeys(r for _, r, _ in triples))
    eighths = lambda count: [draw.randrange(-16, 17) / 8 for _ in range(count)]
    return {
        "vertices": VERTICES,
        "triples": [[vertices.index(s), relations.index(r), vertices.index(t)] for s, r, t in triples],
        "features": eighths(VERTICES * FEATURES),
        "labels": [draw.randrange(CLASSES) for _ in range(VERTICES)],
        "train": sorted(draw.sample(range(VERTICES), 13)),
    }


def drawn(layers, head):
    """Sets all parameters, and returns the program's."""
    draw = torch.Generator().manual_seed(3)
    uniform = lambda *shape: (torch.rand(shape, generator=draw, dtype=torch.float64) * 2 - 1) * 0.7
    ours = {}
    with torch.no_grad():
        for number, layer in enumerate(layers):
            biases = uniform(RELATIONS, HIDDEN)
            for parameter, value in ((layer.weight, uniform(*layer.weight.shape)), (layer.q, uniform(HIDDEN, 1)), (layer.k, uniform(HIDDEN, 1)),
                                     (layer.bias, biases.sum(0))):
                parameter.copy_(value)
            vectors = torch.cat([layer.q.T, layer.k.T], 1)  # of the target, then of the source
            ours |= {f"layer{number}.weight": layer.weight.detach().clone(), f"layer{number}.attention": vectors.repeat(RELATIONS, 1).detach(),
                     f"layer{number}.biases": biases}
        for parameter in (head.weight, head.bias):
            parameter.copy_(uniform(*parameter.shape))
        ours |= {"head.weight": head.weight.T.detach(), "head.bias": head.bias.detach()}
    return {name: value.flatten().tolist() for name, value in ours.items()}


def main():
    data = graph()
    layer = lambda width: RGATConv(width, HIDDEN, RELATIONS, attention_mechanism="within-relation", attention_mode="additive-self-attention").double()
    layers, head = [layer(FEATURES), layer(HIDDEN)], torch.nn.Linear(HIDDEN, CLASSES).double()
    parameters = drawn(layers, head)
    sources, types, targets = (torch.tensor(list(column)) for column in zip(*data["triples"]))
    x = torch.tensor(data["features"], dtype=torch.float64).reshape(-1, FEATURES)
    edges = torch.stack([sources, targets])
    logits = head(layers[1](functional.relu(layers[0](x, edges, types)), edges, types))
    train = torch.tensor(data["train"])
    loss = functional.cross_entropy(logits[train], torch.tensor(data["labels"])[train])
    loss.backward()
    gradients = {"head.weight": head.weight.grad.T, "head.bias": head.bias.grad}
    for number, part in enumerate(layers):
        gradients |= {f"layer{number}.weight": part.weight.grad, f"layer{number}.attention": torch.cat([part.q.grad.T, part.k.grad.T], 1),
                      f"layer{number}.biases": part.bias.grad.repeat(RELATIONS, 1)}
    print(json.dumps({"graph": data, "parameters": parameters, "loss": loss.item(),
                      "gradients": {name: value.flatten().tolist() for name, value in gradients.items()}}, separators=(",", ":")))


if __name__ == "__main__":
    main()
