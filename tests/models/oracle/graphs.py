# SPDX-License-Identifier: Apache-2.0
"""The two small graphs of oracle.py: Zachary's karate club, and a generated graph in the folder blocks/."""

import random

import numpy as np

NUM_BLOCKS, BLOCK_VERTICES, NUM_FEATURES = 4, 30, 6

# Zachary (1977): the ties of each member with members of higher number.
KARATE = {0: [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 17, 19, 21, 31], 1: [2, 3, 7, 13, 17, 19, 21, 30],
          2: [3, 7, 8, 9, 13, 27, 28, 32], 3: [7, 12, 13], 4: [6, 10], 5: [6, 10, 16], 6: [16], 8: [30, 32, 33],
          9: [33], 13: [33], 14: [32, 33], 15: [32, 33], 18: [32, 33], 19: [33], 20: [32, 33], 22: [32, 33],
          23: [25, 27, 29, 32, 33], 24: [25, 27, 31], 25: [31], 26: [29, 33], 27: [33], 28: [31, 33],
          29: [32, 33], 30: [32, 33], 31: [32, 33], 32: [33]}
INSTRUCTORS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 16, 17, 19, 21]


class Graph:
    def __init__(self, edges, features, labels, train, valid, test):
        self.features, self.labels = np.array(features, dtype=float), np.array(labels)
        self.train, self.valid, self.test = np.array(train), np.array(valid), np.array(test)
        self.num_vertices, self.num_features = self.features.shape
        self.num_classes = int(self.labels.max()) + 1
        a = np.eye(self.num_vertices)
        for source, target in edges:
            a[source, target] = a[target, source] = 1
        degrees = a.sum(axis=1)
        self.matrix = a / np.sqrt(np.outer(degrees, degrees))


def karate():
    labels = [0 if v in INSTRUCTORS else 1 for v in range(34)]
    others = [v for v in range(34) if v not in (0, 33)]
    return Graph([(v, w) for v, ties in KARATE.items() for w in ties], np.eye(34), labels, [0, 33],
                 [v for v in others if v % 2 == 0], [v for v in others if v % 2 == 1])


def table(path):
    return np.atleast_1d(np.loadtxt(path, delimiter=","))


def load(name, folder):
    if name == "karate":
        return karate()
    raw, split = folder / name / "raw", folder / name / "split" / "random"
    parts = [table(split / f"{part}.csv").astype(int) for part in ("train", "valid", "test")]
    return Graph(table(raw / "edge.csv").astype(int), table(raw / "node-feat.csv"),
                 table(raw / "node-label.csv").astype(int), *parts)


def write_blocks(folder):
    """Edges are likely within a block; features are eighths, exact in every precision."""
    draw = random.Random(20)
    n = NUM_BLOCKS * BLOCK_VERTICES
    blocks = [v % NUM_BLOCKS for v in range(n)]
    edges = [(v, w) for v in range(n) for w in range(v + 1, n)
             if draw.random() < (0.15 if blocks[v] == blocks[w] else 0.02)]
    features = [[(draw.randrange(-8, 9) + 6 * (blocks[v] == f % NUM_BLOCKS)) / 8 for f in range(NUM_FEATURES)]
                for v in range(n)]
    order = draw.sample(range(n), n)
    splits = {"train": sorted(order[:40]), "valid": sorted(order[40:70]), "test": sorted(order[70:110])}

    def write(path, rows):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))

    write(folder / "raw" / "edge.csv", edges)
    write(folder / "raw" / "node-feat.csv", features)
    write(folder / "raw" / "node-label.csv", [[block] for block in blocks])
    write(folder / "raw" / "num-node-list.csv", [[n]])
    write(folder / "raw" / "num-edge-list.csv", [[len(edges)]])
    for name, vertices in splits.items():
        write(folder / "split" / "random" / f"{name}.csv", [[v] for v in vertices])
