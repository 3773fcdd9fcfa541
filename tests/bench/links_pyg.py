# SPDX-License-Identifier: Apache-2.0
"""Link prediction in PyTorch Geometric, at the settings of its own example for GCNs, beside `orthant train --task links`.

links_pyg.py FOLDER SEEDS [THREADS [DECODER]]   FOLDER: what `orthant export --format npy` wrote of a store without held-out edges

Two GCNConv, 128 and 64 wide, Adam with a rate of 0.01, 100 epochs; 5 % of the edges for validation and 10 % for the test; features scaled
to sum 1; new negatives in each epoch. DECODER scores pairs: dot (default), dot products; mlp, a perceptron of the products number by number
with a hidden layer 64 wide, as that of `--decoder mlp`; mlp-glorot, the same with weights drawn as Orthant draws them. Prints a line of JSON
per seed: the areas under the ROC curve of the test edges at the best validation epoch and in the last one. It needs torch and
torch_geometric, and neither scikit-learn nor a data set of their own.
"""

import json
import pathlib
import sys

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.transforms import NormalizeFeatures, RandomLinkSplit
from torch_geometric.utils import negative_sampling, to_undirected


class Network(torch.nn.Module):
    def __init__(self, num_features, decoder):
        super().__init__()
        self.first, self.second = GCNConv(num_features, 128), GCNConv(128, 64)
        layers = [torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1), torch.nn.Flatten(0)]
        self.decoder = SumOfRow() if decoder == "dot" else torch.nn.Sequential(*layers)
        for layer in (layers[0], layers[2]) if decoder == "mlp-glorot" else ():
            torch.nn.init.xavier_uniform_(layer.weight)
            torch.nn.init.zeros_(layer.bias)

    def forward(self, x, edges):
        return self.second(self.first(x, edges).relu(), edges)

    def scores_of(self, embeddings, pairs):
        return self.decoder(embeddings[pairs[0]] * embeddings[pairs[1]])


class SumOfRow(torch.nn.Module):
    def forward(self, products):
        return products.sum(dim=-1)


def read_graph(folder):
    edges = torch.from_numpy(np.load(folder / "edge_index.npy").astype(np.int64))
    if (folder / "x.npy").exists():
        x = np.load(folder / "x.npy").astype(np.float32)
    else:
        begin, columns, values = (np.load(folder / f"x_{part}.npy") for part in ("indptr", "indices", "data"))
        width = json.loads((folder / "meta.json").read_text())["num_features"]
        x = np.zeros((len(begin) - 1, width), np.float32)
        x[np.repeat(np.arange(len(begin) - 1), np.diff(begin)), columns] = values
    return NormalizeFeatures()(Data(x=torch.from_numpy(x), edge_index=to_undirected(edges)))


def area(model, part):
    """Share of pairs of a positive and a negative in the right order, ties half."""
    scores = model.scores_of(model(part.x, part.edge_index), part.edge_label_index)
    positives, negatives = scores[part.edge_label == 1], torch.sort(scores[part.edge_label == 0]).values
    below, not_above = (torch.searchsorted(negatives, positives, right=right).double() for right in (False, True))
    return float((below + not_above).mean() / 2 / len(negatives))


def train(graph, seed, decoder):
    torch.manual_seed(seed)
    split = RandomLinkSplit(num_val=0.05, num_test=0.1, is_undirected=True, add_negative_train_samples=False)
    training, valid, test = split(graph)
    model = Network(graph.num_features, decoder)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loss_of = torch.nn.BCEWithLogitsLoss()
    best = (0.0, 0.0)
    for _ in range(100):
        optimizer.zero_grad()
        embeddings = model(training.x, training.edge_index)
        num_positive = training.edge_label_index.size(1)
        negatives = negative_sampling(training.edge_index, training.num_nodes, num_positive, method="sparse")
        scores = model.scores_of(embeddings, torch.cat([training.edge_label_index, negatives], dim=-1))
        loss = loss_of(scores, torch.cat([torch.ones(num_positive), torch.zeros(negatives.size(1))]))
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            found = tuple(area(model, part) for part in (valid, test))
        best = max(best, found)
    return {"seed": seed, "best_valid": best[0], "best_test": best[1], "last_test": found[1], "loss": loss.item()}


def main():
    torch.set_num_threads(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    graph = read_graph(pathlib.Path(sys.argv[1]))
    decoder = sys.argv[4] if len(sys.argv) > 4 else "dot"
    for seed in range(int(sys.argv[2])):
        print(json.dumps(train(graph, seed, decoder)), flush=True)


if __name__ == "__main__":
    main()
