#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains GraphSAGE (mean), GIN or GAT on the CPU in PyTorch with PyG, DGL or neither, and times its epochs.

  graph_model_peers.py --model sage --backend pyg --graph NPY_FOLDER --weights W.h5 --threads 2 --epochs 5 [--serve]

NPY_FOLDER is what `orthant export --format npy` writes, W.h5 what `orthant train --epochs 0 --save-weights` does. An epoch is a forward
pass, mean cross-entropy over the training vertices, the backward pass and Adam, in fp32 on the full graph without dropout. Self loops and
repeated edges are left out; gat gets a self loop for every vertex. Prints one line of JSON: of every epoch the seconds, those of processors in all
threads, and the loss before its update. With --serve it prints that for every number of epochs that a line of stdin asks for, and goes on
training.

  pyg            SAGEConv, GINConv, GATConv on edge_index, as documented: gathers a row for every edge and scatters the sums
  pyg_edge_index the same on a sorted EdgeIndex with its caches filled: sums of segments
  pyg_adj_t      SAGEConv and GINConv on a torch.sparse CSR matrix, as documented
  edge_index     plain torch around EdgeIndex.matmul (undirected, 32-bit, caches filled)
  torch_csr      plain torch around torch.sparse CSR @ dense in MKL (32-bit indices, written in place; gat: one matrix per head and sampled_addmm)
  torch_reduce   plain torch around torch.sparse.mm(.., 'sum'), PyTorch's own kernel
  dgl            SAGEConv, GINConv, GATConv on a 32-bit graph
  dgl_copy       plain torch around DGL's copy_u/sum (LIBXSMM)

Plain torch keeps A F of the first layer from epoch to epoch, and multiplies by weights first where that makes rows narrower; gradients are
products by the stored matrix. Only undirected graphs without weights of edges.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import time
import warnings

import numpy as np
import torch
from graph_model_layers import AttentionByHand, ByHand, Weights, dgl_model, pyg_model

warnings.filterwarnings("ignore")
BACKENDS = {"sage": ("pyg", "pyg_edge_index", "pyg_adj_t", "edge_index", "torch_csr", "torch_reduce", "dgl", "dgl_copy")}
BACKENDS["gin"] = BACKENDS["sage"]
BACKENDS["gat"] = ("pyg", "pyg_edge_index", "torch_csr", "dgl")


# --- the graph ------------------------------------------------------------------------------------------------------------


class Problem:
    """A by rows, with 32-bit indices, features and targets of a folder."""

    def __init__(self, folder: pathlib.Path, adds_self_loops: bool):
        meta = json.loads((folder / "meta.json").read_text())
        self.num_vertices = n = int(meta["num_nodes"])
        if (folder / "edge_weight.npy").exists():
            sys.exit(f"graph_model_peers.py: {folder} has weights of edges: only graphs without are compared")
        source, target = np.load(folder / "edge_index.npy").astype(np.int64)
        source, target = source[source != target], target[source != target]
        if meta["add_inverse_edge"]:
            source, target = np.concatenate([source, target]), np.concatenate([target, source])
        keys = np.unique(target * n + source)
        if not np.array_equal(keys, np.unique(source * n + target)):
            sys.exit(f"graph_model_peers.py: {folder} is directed: only undirected graphs are compared")
        if adds_self_loops:
            keys = np.union1d(keys, np.arange(n) * (n + 1))
        rows, columns = np.divmod(keys, n)
        begin = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
        self.begin, self.rows, self.columns = (torch.from_numpy(array.astype(np.int32)) for array in (begin, rows, columns))
        self.degrees = self.begin.diff().clamp(min=1).float()

        labels = np.load(folder / "labels.npy").astype(np.int64).reshape(-1)
        train = np.load(folder / "train_idx.npy")
        targets = np.full(n, -100, np.int64)  # what cross_entropy leaves out
        targets[train] = np.where(labels[train] >= 0, labels[train], -100)
        self.targets = torch.from_numpy(targets)
        self.features, self.sparse_features = None, None
        if (folder / "x_indptr.npy").exists():
            import scipy.sparse

            parts = tuple(np.load(folder / f"x_{part}.npy") for part in ("data", "indices", "indptr"))
            self.sparse_features = scipy.sparse.csr_matrix(parts, shape=tuple(np.load(folder / "x_shape.npy"))).astype(np.float32)
        else:
            self.features = torch.from_numpy(np.ascontiguousarray(np.load(folder / "x.npy"), np.float32))

    def dense_features(self):
        return self.features if self.sparse_features is None else torch.from_numpy(self.sparse_features.toarray())

    def csr(self, values=None, kind=torch.int32):
        values = torch.ones(len(self.columns)) if values is None else values
        return torch.sparse_csr_tensor(self.begin.to(kind), self.columns.to(kind), values, (self.num_vertices,) * 2, check_invariants=False)

    def edge_index(self, without_self_loops: bool = False):
        """[2 x edges], of 64-bit indices sorted by target."""
        edges = torch.stack([self.columns, self.rows]).long()
        return edges[:, self.columns != self.rows] if without_self_loops else edges


# --- products -------------------------------------------------------------------------------------------------------------


def differentiable(forth, back):
    """H -> forth(H), whose gradient is back(gradient)."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(context, dense):
            return forth(dense)

        @staticmethod
        def backward(context, gradient):
            return back(gradient.contiguous())

    return Product.apply


def mkl_product(matrix):
    def product(dense):  # `matrix @ dense` would zero and copy the result first
        out = torch.empty(matrix.shape[0], dense.shape[1])
        return torch.addmm(out, matrix, dense.detach(), beta=0, out=out)

    return product


def reduce_product(matrix):
    return lambda dense: torch.sparse.mm(matrix, dense.detach(), "sum")


def times_sparse(features):
    """W -> X W of sparse features."""
    if features is None:
        return None
    tensors = [torch.sparse_csr_tensor(torch.from_numpy(part.indptr.astype(np.int32)), torch.from_numpy(part.indices.astype(np.int32)),
                                       torch.from_numpy(part.data), part.shape) for part in (features, features.T.tocsr())]
    return differentiable(*map(reduce_product, tensors))


def aggregation(backend: str, problem: Problem, is_mean: bool):
    """H -> A H, or D^-1 A H, by the library's product."""
    inverse = 1 / problem.degrees
    if backend in ("torch_csr", "torch_reduce"):
        product = mkl_product if backend == "torch_csr" else reduce_product
        if not is_mean:
            forth = product(problem.csr())
            return differentiable(forth, forth)
        # D^-1 A has the inverse degree of its row, A D^-1 that of its column.
        return differentiable(*(product(problem.csr(inverse[ends.long()])) for ends in (problem.rows, problem.columns)))
    if backend == "edge_index":
        from torch_geometric import EdgeIndex

        edges = EdgeIndex(torch.stack([problem.rows, problem.columns]), sparse_size=(problem.num_vertices,) * 2, sort_order="row",
                          is_undirected=True).fill_cache_()
        plain = lambda dense: edges.matmul(dense.detach())  # noqa: E731
    else:
        import dgl

        dgl.use_libxsmm(True)
        graph = dgl_graph(problem).formats("csc")
        plain = lambda dense: dgl.ops.copy_u_sum(graph, dense.detach())  # noqa: E731
    if not is_mean:
        return differentiable(plain, plain)
    scale = inverse.view(-1, 1)
    return differentiable(lambda dense: plain(dense).mul_(scale), lambda dense: plain(dense * scale))


def weighted_sums(problem: Problem):
    """(values [heads x edges], Z [heads x vertices x columns]) -> the sums of rows weighted by values, for every head."""
    # In a symmetric pattern, entry e of A^T is entry `mirror[e]` of A.
    mirror = torch.argsort(problem.columns.long() * problem.num_vertices + problem.rows)

    class Weighted(torch.autograd.Function):
        @staticmethod
        def forward(context, values, z):
            context.save_for_backward(values, z)
            return torch.stack([mkl_product(problem.csr(head))(rows) for head, rows in zip(values, z)])

        @staticmethod
        def backward(context, gradient):
            values, z = context.saved_tensors
            gradient = gradient.contiguous()
            zeros = problem.csr(torch.zeros(values.shape[1]))
            of_values = torch.stack([torch.sparse.sampled_addmm(zeros, g, rows.t(), beta=0).values() for g, rows in zip(gradient, z)])
            return of_values, torch.stack([mkl_product(problem.csr(head[mirror]))(g) for head, g in zip(values, gradient)])

    return Weighted.apply


def dgl_graph(problem: Problem, numbers_edges: bool = False):
    """numbers_edges: for sums of numbers of edges, which want the places; sums of rows alone are faster without."""
    import dgl

    ids = torch.arange(len(problem.columns) if numbers_edges else 0, dtype=torch.int32)
    return dgl.graph(("csc", (problem.begin, problem.columns, ids)), num_nodes=problem.num_vertices, idtype=torch.int32)


# --- training -------------------------------------------------------------------------------------------------------------


def make_model(options: argparse.Namespace, problem: Problem, weights: Weights):
    """(model, features that it is called with)."""
    model, backend = options.model, options.backend
    if backend == "pyg":
        return pyg_model(model, weights, problem.edge_index(without_self_loops=True)), problem.dense_features()
    if backend == "pyg_edge_index":
        from torch_geometric import EdgeIndex

        edges = EdgeIndex(problem.edge_index(), sparse_size=(problem.num_vertices,) * 2, sort_order="col", is_undirected=True).fill_cache_()
        return pyg_model(model, weights, edges, adds_self_loops=False), problem.dense_features()
    if backend == "pyg_adj_t":
        return pyg_model(model, weights, problem.csr(kind=torch.int64)), problem.dense_features()
    if backend == "dgl":
        return dgl_model(model, weights, dgl_graph(problem, model == "gat")), problem.dense_features()
    times_features = times_sparse(problem.sparse_features)
    if model == "gat":
        pattern = problem.rows.long(), problem.columns.long(), problem.begin.long()
        return AttentionByHand(weights, weighted_sums(problem), pattern, times_features), problem.features
    aggregate = aggregation(backend, problem, model == "sage")
    return ByHand(model, weights, aggregate, problem.features, times_features, options.caches), problem.features


def epochs(options: argparse.Namespace):
    """Trains on and on; next() gives the seconds of an epoch, the processor seconds of all threads, and the loss."""
    problem = Problem(options.graph, options.model == "gat")
    model, features = make_model(options, problem, Weights(options.weights))
    parameters = list(model.parameters())
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    optimizer = torch.optim.Adam(parameters, lr=options.lr, **({"fused": True} if version >= (2, 4) else {"foreach": True}))
    while True:
        start, start_processor = time.perf_counter(), time.process_time()
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(features), problem.targets)
        loss.backward()
        optimizer.step()
        value = loss.item()
        yield time.perf_counter() - start, time.process_time() - start_processor, value


def peak_mib() -> float:
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def versions() -> str:
    names = [name for name in ("torch", "torch_geometric", "dgl") if name in sys.modules]
    return " ".join(f"{name} {sys.modules[name].__version__}" for name in names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=BACKENDS, required=True)
    parser.add_argument("--backend", choices=sorted({name for names in BACKENDS.values() for name in names}), required=True)
    parser.add_argument("--graph", type=pathlib.Path, required=True, help="folder of .npy files")
    parser.add_argument("--weights", type=pathlib.Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--no-cache", dest="caches", action="store_false", help="plain torch: compute A F of the first layer in every epoch")
    parser.add_argument("--serve", action="store_true", help="read numbers of epochs from stdin")
    options = parser.parse_args()
    if options.backend not in BACKENDS[options.model]:
        parser.error(f"--model {options.model} has no backend {options.backend}, but {', '.join(BACKENDS[options.model])}")
    torch.set_num_threads(options.threads)
    training = epochs(options)
    for line in sys.stdin if options.serve else [options.epochs]:
        seconds, processor_seconds, losses = zip(*(next(training) for _ in range(int(line))))
        print(json.dumps({"backend": options.backend, "seconds": seconds, "processor_seconds": processor_seconds, "losses": losses, "peak_mib": peak_mib(),
                          "load": os.getloadavg()[0], "versions": versions()}), flush=True)


if __name__ == "__main__":
    main()
