#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A step of training against PyTorch Geometric: against_pyg.py PROGRAM GRAPH_MODELS_MD [COUNT [SEED]]

Draws COUNT (40) networks: convolution, norm, activation, residual, jumping knowledge and what else `train` offers. The loss of a step and
the gradients of all parameters, from the same weights, must be those of the same network of PyTorch Geometric's layers (pyg_network.py)
to 1e-9. The program's gradients are the difference of its weights before and after a step of SGD at a rate of 1. Skips (77), saying so,
without PyTorch Geometric. What is refused must be documented (refusals.py).
"""

import importlib.util
import json
import os
import random
import re
import sys
import tempfile

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(FOLDER, ".."), os.path.join(FOLDER, "..", "..", "faults")]
sys.path.append(FOLDER)

if not all(map(importlib.util.find_spec, ("torch", "torch_geometric"))):
    print("skipped: this Python has no torch_geometric")
    sys.exit(77)

import hdf5  # noqa: E402
import torch  # noqa: E402
from predictions import write_npy  # noqa: E402
from program import PROGRAM, Failure, attempt_all, expect_success, run  # noqa: E402
from pyg_network import Network  # noqa: E402
from refusals import are_documented  # noqa: E402
from torch.nn import functional  # noqa: E402

TOLERANCE = 1e-9
VERTICES, FEATURES, CLASSES = 40, 8, 4
GRAPHS = ("undirected", "several labels", "directed", "weighted")
CONVOLUTIONS = ("gcn", "sage mean", "sage sum", "sage max", "gin", "gat", "gatv2", "transformer", "sgc", "appnp", "gcnii", "graphconv mean", "graphconv sum", "tag")
ACTIVATIONS = ("relu", "elu", "gelu", "silu", "leaky_relu", "tanh")
RESIDUALS = ("none", "identity", "project")
LOSSES = ("cross-entropy", "binary", "focal")
JUMPS = ("none", "none", "cat", "max", "mean")
# On graphs with weights: others ignore the weights there alone, or divide by the number of neighbors in place of the sum of the weights.
WEIGHED = ("gcn", "sgc", "appnp", "gcnii", "graphconv sum", "tag", "gat", "gatv2", "transformer", "sage max")


class Graph:
    """A random graph with features, labels and a split, as a store of the program and as tensors."""

    def __init__(self, scratch, kind):
        draw = random.Random(f"graph {kind}")
        pairs = [(u, v) for u in range(VERTICES) for v in range(VERTICES) if u != v and (kind == "directed" or u < v)]
        pairs = draw.sample(pairs, 3 * VERTICES)
        weights = [draw.choice((0.5, 0.75, 1.25, 2.0)) for _ in pairs]
        features = [draw.randrange(-32, 33) / 16 for _ in range(VERTICES * FEATURES)]
        labels = [draw.randrange(CLASSES) for _ in range(VERTICES)]
        several = [draw.randrange(2) for _ in range(VERTICES * CLASSES)]
        order = draw.sample(range(VERTICES), VERTICES)
        split = {"train": sorted(order[:24]), "valid": sorted(order[24:32]), "test": sorted(order[32:])}
        self.store = os.path.join(scratch, f"{kind}.h5")
        folder = os.path.join(scratch, kind)
        os.mkdir(folder)
        write = lambda name, *array: write_npy(os.path.join(folder, f"{name}.npy"), *array)
        write("edge_index", (2, len(pairs)), "q", [u for u, _ in pairs] + [v for _, v in pairs])
        write("x", (VERTICES, FEATURES), "f", features)
        if kind == "several labels":
            write("labels", (VERTICES, CLASSES), "b", several)
        else:
            write("labels", (VERTICES,), "q", labels)
        for name, vertices in split.items():
            write(f"{name}_idx", (len(vertices),), "q", vertices)
        if kind == "weighted":
            write("edge_weight", (len(pairs),), "f", weights)
        expect_success(1, ["partition", "--input", folder, "-o", self.store, *(["--directed"] if kind == "directed" else [])])

        if kind != "directed":
            pairs, weights = pairs + [(v, u) for u, v in pairs], weights * 2
        self.edges = torch.tensor(pairs).T.contiguous()
        self.weights = torch.tensor(weights, dtype=torch.float64) if kind == "weighted" else None
        self.features = torch.tensor(features, dtype=torch.float64).reshape(VERTICES, FEATURES)
        self.labels = torch.tensor(several).reshape(VERTICES, CLASSES) if kind == "several labels" else torch.tensor(labels)
        self.train = torch.tensor(split["train"])


def drawn(number, seed):
    """The settings of combination `number`: every convolution in turn, everything else at random."""
    draw = random.Random(f"{seed} {number}")
    maybe = lambda share: draw.random() < share
    model, *aggregator = CONVOLUTIONS[number % len(CONVOLUTIONS)].split()
    settings = {"model": model, "graph": draw.choice(GRAPHS[:4 if " ".join((model, *aggregator)) in WEIGHED else 3])}
    settings |= {"aggregator": aggregator[0]} if aggregator else {}
    settings |= {"layers": draw.choice((2, 3) if model != "sgc" else (1, 3)), "hidden": draw.choice((8, 12))}
    if settings["layers"] > 1:
        settings |= {"norm": draw.choice(("none", "rms", "layer", "batch")), "activation": draw.choice(ACTIVATIONS),
                     "residual": draw.choice(RESIDUALS), "jump": draw.choice(JUMPS)}
    if model in ("gat", "gatv2", "transformer"):
        settings |= {"heads": draw.choice((1, 2, 4)), "output-heads": draw.choice((1, 2))}
    if model in ("sgc", "appnp", "tag"):
        settings |= {"propagation-steps": draw.choice((1, 2, 3))}
    if model in ("appnp", "gcnii"):
        settings |= {"teleport": draw.choice((0.1, 0.3))}
    if model == "gcn" and maybe(0.3):
        settings |= {"normalize": "none"}
    settings |= {"head": True} if maybe(0.4) else {}
    settings |= {"input-projection": True} if maybe(0.3) else {}
    for flag in ("no-bias", "trainable-features"):
        settings |= {flag: True} if maybe(0.2) else {}
    if maybe(0.2):
        settings["label-smoothing"] = 0.1
    if maybe(0.2):
        settings["class-weights"] = "balanced"
    loss = draw.choice(LOSSES)
    settings |= {"loss": loss} if loss != "cross-entropy" else {}
    settings |= {"focal-gamma": draw.choice((1, 2))} if loss == "focal" else {}
    return settings


def words_of(settings):
    words = []
    for option, value in settings.items():
        if option != "graph" and (value != "none" or option == "normalize"):
            words += [f"--{option}"] if value is True or value == "identity" else [f"--{option}", str(value)]
    return words


def tensors_of(library, path):
    with hdf5.File(library, path) as file:
        arrays = {name.removeprefix("/parameters/"): file.read(name) for name in file.names() if name.startswith("/parameters/")}
    return {name: torch.tensor(array.values, dtype=torch.float64).reshape(array.shape) for name, array in arrays.items()}


def is_statistic(name):
    return name.endswith(("norm_mean", "norm_variance"))


def set_at_random(library, path, seed):
    """Other weights in place of those that a training starts from, whose biases are 0 and whose norms have no effect."""
    generator = torch.Generator().manual_seed(seed)
    with hdf5.File(library, path, hdf5.WRITE) as file:
        for name in file.names():
            if not name.startswith("/parameters/") or is_statistic(name):
                continue
            shape = file.read(name).shape
            numbers = torch.randn(*shape, generator=generator, dtype=torch.float64)
            numbers = 1 + 0.2 * numbers if name.endswith(".norm") else numbers * (shape[0] ** -0.5 if len(shape) == 2 else 0.3)
            file.write(name, numbers.flatten().tolist())


def step_of_program(library, scratch, graph, settings, number):
    """Weights before the step, loss and gradients; or the sentence of a refusal."""
    before, after, metrics = (os.path.join(scratch, f"{number}-{name}") for name in ("before.h5", "after.h5", "m.jsonl"))
    words = ["train", "--graph", graph.store, *words_of(settings), "--dropout", "0", "--compute-dtype", "fp64", "--eval-every", "0"]
    done = run(1, [*words, "--epochs", "0", "--save-weights", before])
    if done.returncode == 2:
        return re.findall(r"^orthant: error: (.*)$", done.stderr, re.M)[0]
    if done.returncode != 0:
        raise Failure(f"ends with status {done.returncode}: {done.stderr}")
    set_at_random(library, before, number)
    expect_success(1, [*words, "--epochs", "1", "--optimizer", "sgd", "--lr", "1", "--init-from", before, "--save-weights", after,
                       "--metrics", metrics])
    with open(metrics, encoding="utf-8") as file:
        loss = [event["loss"] for event in map(json.loads, file) if event["event"] == "epoch"][0]
    start, end = tensors_of(library, before), tensors_of(library, after)
    gradients = {name: start[name] - end[name] for name in start if not is_statistic(name)}
    return start, loss, gradients


def loss_of(settings, logits, labels):
    """Cross entropy, or the binary loss of each class (docs/graph_models.md, Losses)."""
    targets = labels.double() if labels.dim() == 2 else functional.one_hot(labels, CLASSES).double()
    counts = targets.sum(0)
    weights = torch.ones(CLASSES)
    if settings.get("class-weights") == "balanced":
        weights = torch.where(counts > 0, counts.sum() / ((counts > 0).sum() * counts), weights)
    smoothing, loss = settings.get("label-smoothing", 0), settings.get("loss", "cross-entropy")
    if loss == "cross-entropy" and labels.dim() == 1:
        return functional.cross_entropy(logits, labels, weights, label_smoothing=smoothing)
    targets = (1 - smoothing) * targets + smoothing / 2
    terms = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    if loss == "focal":
        p = torch.sigmoid(logits)
        terms = terms * (1 - p * targets - (1 - p) * (1 - targets)) ** settings["focal-gamma"]
    return (terms * weights).mean()


def step_of_pyg(graph, settings, start):
    parameters = {name: numbers.clone().requires_grad_(not is_statistic(name)) for name, numbers in start.items()}
    features = parameters.get("features", graph.features)
    logits = Network(settings, parameters, graph.edges, graph.weights).logits(features)
    loss = loss_of(settings, logits[graph.train], graph.labels[graph.train])
    loss.backward()
    return loss.item(), {name: numbers.grad for name, numbers in parameters.items() if not is_statistic(name)}


def one_step_is_that_of_pyg(_, title, number, settings, library, scratch, graphs, refused):
    graph = graphs[settings["graph"]]
    found = step_of_program(library, scratch, graph, settings, number)
    if isinstance(found, str):
        refused.append(found)
        print(f"     {title}: {found}")
        return
    start, loss, gradients = found
    expected_loss, expected = step_of_pyg(graph, settings, start)
    unused = [name for name, gradient in expected.items() if gradient is None]
    if unused:
        raise Failure(f"PyTorch Geometric's network does not use {', '.join(unused)}")
    errors = {}
    if abs(loss - expected_loss) > TOLERANCE * abs(expected_loss):
        errors["loss"] = f"{loss}, not {expected_loss}"
    # A gradient that is zero in theory, such as that of a bias before BatchNorm, has rounding errors of the others' size.
    largest = max(gradient.abs().max().item() for gradient in expected.values())
    for name, gradient in gradients.items():
        scale = max(expected[name].abs().max().item(), 1e-3 * largest)
        error = (gradient - expected[name]).abs().max().item() / scale
        if not error <= TOLERANCE:
            errors[name] = f"gradient differs by {error:.1e}"
    if errors:
        raise Failure("; ".join(f"{name}: {what}" for name, what in errors.items()))


def main():
    count, seed = (int(text) for text in (sys.argv[3:] + ["40", "1"][len(sys.argv) - 3:]))
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    library = hdf5.Library(hdf5.library_of(PROGRAM))
    refused = []
    with tempfile.TemporaryDirectory() as scratch:
        graphs = {kind: Graph(scratch, kind) for kind in GRAPHS}
        jobs = []
        for number in range(count):
            settings = drawn(number, seed)
            title = f"{number} {settings['graph']}: {' '.join(words_of(settings))}"
            jobs.append((1, (one_step_is_that_of_pyg, title, number, settings, library, scratch, graphs, refused)))
        status = attempt_all(jobs)
    is_documented = are_documented(refused, sys.argv[2])
    print(f"{count} combinations, {len(refused)} refused")
    return status if is_documented else 1


if __name__ == "__main__":
    sys.exit(main())
