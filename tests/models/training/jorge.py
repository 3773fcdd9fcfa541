# SPDX-License-Identifier: Apache-2.0
"""python3 jorge.py [--check|--roots]: ten steps of Jorge (Singh, Sating & Bhatele, arXiv 2310.12298) by NumPy.

Writes jorge.json beside this file; --check compares with what is there instead. --roots prints how well forms of the preconditioner
approximate inverse fourth roots (docs/optimizers.md). Nothing of Orthant is run or imported.
A matrix is cut into tiles of at most TILE x TILE numbers, each of which is preconditioned as a matrix of its own; the
vector has plain momentum. Values and gradients are formulas of the place, which jorge_test.cpp has, too.
"""

import json
import pathlib
import sys

import numpy as np

SHAPES = {"a": (9, 7), "b": (5, 13), "c": (6, 4), "bias": (5,)}
TILE, INTERVAL, EPSILON, MOMENTUM = 4, 3, 1e-5, 0.9
RATE, DECAY, STEPS = 0.1, 0.05, 10


def formula(shape, p, t):
    rows, columns = shape if len(shape) == 2 else (1, shape[0])
    i, j = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    return np.sin(1 + 0.7 * i + 1.3 * j + 0.37 * i * j + 0.9 * t + 0.3 * p).reshape(shape)


class Preconditioner:
    """An approximation of the inverse fourth root of the mean moments of one side. `form`: ours, published, or its symmetric part."""

    def __init__(self, form="ours", epsilon=EPSILON):
        self.root, self.form, self.epsilon = None, form, epsilon

    def refresh(self, gradient):
        unit = np.eye(len(gradient))
        trace = np.sum(gradient * gradient)
        if self.root is None:
            self.root = unit * (trace / len(unit)) ** -0.25
        moments = gradient @ gradient.T + self.epsilon * trace * unit
        square = self.root @ self.root
        x = square @ moments @ square if self.form == "ours" else square @ square @ moments
        norm = np.linalg.norm(x)
        self.beta = norm / (norm + 1)
        x = x / norm
        if self.form == "ours":
            series = unit - x / 8 + 9 / 128 * (x @ x)
            root = series @ self.root @ series
        else:
            root = self.root @ (unit - x / 4 + 5 / 32 * (x @ x))
        if self.form == "symmetric part":
            root = (root + root.T) / 2
        self.root = self.beta ** -0.25 * root
        return moments


class Jorge:
    """Of one tile."""

    def __init__(self, shape):
        self.left, self.right = Preconditioner(), Preconditioner()
        self.sgd, self.momentum = np.zeros(shape), np.zeros(shape)

    def step(self, weight, gradient, t):
        self.sgd = MOMENTUM * self.sgd + gradient
        if t % INTERVAL == 0:
            self.left.refresh(gradient)
            self.right.refresh(gradient.T)
        self.momentum = MOMENTUM * self.momentum + self.left.root @ gradient @ self.right.root
        update = self.momentum * np.linalg.norm(self.sgd) / np.linalg.norm(self.momentum)
        return weight - RATE * (update + DECAY * weight)


def tiles_of(shape):
    return [(slice(i, min(i + TILE, shape[0])), slice(j, min(j + TILE, shape[1])))
            for i in range(0, shape[0], TILE) for j in range(0, shape[1], TILE)]


def train(p, shape):
    weight = formula(shape, p, -1)
    if len(shape) == 1:
        momentum = np.zeros(shape)
        for t in range(STEPS):
            momentum = MOMENTUM * momentum + formula(shape, p, t)
            weight = weight - RATE * momentum
        return weight
    optimizers = [(tile, Jorge(weight[tile].shape)) for tile in tiles_of(shape)]
    for t in range(STEPS):
        gradient = formula(shape, p, t)
        for tile, optimizer in optimizers:
            weight[tile] = optimizer.step(weight[tile], gradient[tile], t)
    return weight


def print_roots(side=64, refreshes=400):
    """Random gradients whose rows have a fixed covariance of condition 1000; the last row is 0."""
    for form, epsilon in (("published", 0), ("symmetric part", 0), ("ours", 0), ("ours", EPSILON)):
        random = np.random.default_rng(0)
        factor = random.normal(size=(side, side)) * np.logspace(0, -1.5, side)
        preconditioner, mean = Preconditioner(form, epsilon), None
        for _ in range(refreshes):
            gradient = 0.01 * factor @ random.normal(size=(side, side))
            gradient[-1] = 0
            moments = preconditioner.refresh(gradient)
            if mean is None:
                mean = np.eye(side) * np.sum(gradient * gradient) / side
            mean = preconditioner.beta * mean + (1 - preconditioner.beta) * moments
        values, vectors = np.linalg.eigh(mean)
        exact, found = vectors * values ** -0.25 @ vectors.T @ gradient, preconditioner.root @ gradient
        cosine = np.sum(exact * found) / np.linalg.norm(exact) / np.linalg.norm(found)
        roots = np.linalg.eigvals(preconditioner.root).real
        print(f"{form}, eps {epsilon}: cosine {cosine:.3f}, b {preconditioner.beta:.3f}, eigenvalues {roots.min():.3g} to {roots.max():.3g}")


def main():
    if "--roots" in sys.argv[1:]:
        print_roots()
        return
    path = pathlib.Path(__file__).with_name("jorge.json")
    trained = {name: train(p, shape) for p, (name, shape) in enumerate(SHAPES.items())}
    if "--check" in sys.argv[1:]:
        for name, numbers in json.loads(path.read_text()).items():
            assert np.abs(np.array(numbers) - trained[name].ravel()).max() < 1e-13, name
        return
    path.write_text(json.dumps({name: weight.ravel().tolist() for name, weight in trained.items()}) + "\n")


if __name__ == "__main__":
    main()
