# SPDX-License-Identifier: Apache-2.0
"""The PyTorch side of compare_torch.py, which starts this file as a process of its own.

torch_trainer.py probe            which torch, and whether PyG and torch_sparse can be imported, as JSON
torch_trainer.py prepare IN OUT   IN: what `orthant export --format npy` wrote; OUT: A^ and A^^T in CSR, features,
                                  labels and training vertices as .npy, so that the timed process only maps files
torch_trainer.py train SETTINGS   trains as the JSON file says and prints {"seconds": [..], "losses": [..], ..}

The model is a GCN, layer by layer Q = A^ (F W) + 1 b^T as PyG's GCNConv computes it, ReLU and dropout between layers, with
A^ = D^-1/2 (A + I) D^-1/2 computed once. Where the settings say "caches", the first layer is Q = (A^ F) W + 1 b^T with
A^ F kept from before the first epoch. A loss is the mean cross-entropy over the training vertices, before the update.

  csr   torch.sparse_csr_tensor @ dense; the backward pass multiplies by the stored transpose, which of a symmetric
        graph is A^ itself. Indices have 64 bits on the host, 32 on a CUDA device, where they are faster and smaller
  csr64 the same with 64 bits anywhere, PyTorch's own choice
  pyg   GCNConv on a torch_sparse SparseTensor, or on torch's CSR where torch_sparse is absent; features are dense
"""

from __future__ import annotations

import json
import pathlib
import resource
import sys
import time

import numpy as np

from torch_arrays import prepare


# --- what is installed ----------------------------------------------------------------------------------------------------


def probe() -> dict:
    found = {"python": sys.executable, "torch": None, "pyg": None, "torch_sparse": None}
    for key, module in (("torch", "torch"), ("pyg", "torch_geometric"), ("torch_sparse", "torch_sparse")):
        try:
            found[key] = str(__import__(module).__version__)
        except (ImportError, OSError, RuntimeError, AttributeError) as error:
            found[f"no_{key}"] = str(error).splitlines()[0] if str(error) else type(error).__name__
    return found | (probe_cuda() if found["torch"] else {"cuda": None, "no_cuda": "no torch"})


def probe_cuda() -> dict:
    import torch

    if torch.version.cuda is None:
        return {"cuda": None, "no_cuda": "this torch is built for the host only"}
    try:
        torch.cuda.init()
        return {"cuda": torch.cuda.get_device_name(0)}
    except (RuntimeError, AssertionError) as error:
        return {"cuda": None, "no_cuda": str(error).splitlines()[0]}


# --- train ----------------------------------------------------------------------------------------------------------------


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def load(settings: dict, name: str, kind: str | None = None):
    """An array that `prepare` wrote, as numbers of that kind, on the device."""
    import torch

    array = torch.from_numpy(np.load(pathlib.Path(settings["folder"]) / f"{name}.npy"))
    return array.to(settings["device"], getattr(torch, kind) if kind else array.dtype)


class Csr:
    """A sparse matrix with its transpose; `self @ dense` knows its gradient."""

    def __init__(self, matrix, transpose):
        self.matrix, self.transpose = matrix, transpose

    def __matmul__(self, dense):
        return spmm()(self.matrix, self.transpose, dense)


def spmm():
    """The product as an autograd function; made on first use, because torch is imported late."""
    import torch

    if not hasattr(spmm, "function"):
        class Spmm(torch.autograd.Function):
            @staticmethod
            def forward(context, matrix, transpose, dense):
                context.transpose = transpose
                return matrix @ dense

            @staticmethod
            def backward(context, gradient):
                return None, None, context.transpose @ gradient.contiguous()

        spmm.function = Spmm
    return spmm.function.apply


def csr_tensor(begin, columns, values, shape):
    """Without the checks that torch 1 makes on every construction."""
    import torch

    make = getattr(torch, "_sparse_csr_tensor_unsafe", torch.sparse_csr_tensor)
    return make(begin, columns, values, size=shape)


def load_parts(settings: dict, name: str) -> tuple:
    """Row begins, columns and values of a matrix in CSR."""
    kind = "int32" if settings["device"] == "cuda" and settings["implementation"] == "csr" else "int64"
    return load(settings, f"{name}_begin", kind), load(settings, f"{name}_columns", kind), load(settings, f"{name}_values")


def load_csr(settings: dict, name: str, shape: tuple[int, int]):
    return csr_tensor(*load_parts(settings, name), shape)


class Graph:
    """What `prepare` wrote."""

    def __init__(self, settings: dict):
        sizes = settings["sizes"]
        self.num_vertices, num_features = sizes["num_vertices"], sizes["num_features"]
        square = (self.num_vertices, self.num_vertices)
        self.begin, self.columns, self.values = load_parts(settings, "adjacency")
        matrix = csr_tensor(self.begin, self.columns, self.values, square)
        transpose = matrix if sizes["is_symmetric"] else load_csr(settings, "transpose", square)
        self.adjacency = Csr(matrix, transpose)
        if sizes["has_sparse_features"]:
            self.features = Csr(load_csr(settings, "features", (self.num_vertices, num_features)),
                                load_csr(settings, "features_transpose", (num_features, self.num_vertices)))
        else:
            self.features = load(settings, "features")
        self.labels, self.train = load(settings, "labels"), load(settings, "train")


def load_parameters(settings: dict) -> list:
    """(weight [in x out], bias [out]) of every layer, from the raw numbers that h5dump wrote."""
    import torch

    folder, widths = pathlib.Path(settings["weights"]), settings["widths"]
    read = lambda name: torch.from_numpy(np.fromfile(folder / f"{name}.bin", np.float32)).to(settings["device"])  # noqa: E731
    return [(read(f"layer{layer}.weight").reshape(widths[layer], widths[layer + 1]), read(f"layer{layer}.bias"))
            for layer in range(len(widths) - 1)]


def make_csr_model(settings: dict):
    """convolve(layer, adjacency, features) -> Q, and the parameters; without an adjacency, features are A^ F."""
    import torch

    parameters = [tuple(torch.nn.Parameter(part) for part in layer) for layer in load_parameters(settings)]

    def convolve(layer: int, adjacency, features):
        weight, bias = parameters[layer]
        if adjacency is None:
            return torch.addmm(bias, features, weight)
        return adjacency @ (features @ weight) + bias

    return convolve, [part for layer in parameters for part in layer]


def make_pyg_model(settings: dict):
    import torch
    from torch_geometric.nn import GCNConv

    layers = []
    for weight, bias in load_parameters(settings):
        layer = GCNConv(*weight.shape, normalize=False).to(settings["device"])
        with torch.no_grad():
            layer.lin.weight.copy_(weight.t())
            layer.bias.copy_(bias)
        layers.append(layer)
    parameters = [parameter for layer in layers for parameter in layer.parameters()]

    def convolve(index: int, adjacency, features):
        layer = layers[index]
        return layer.lin(features) + layer.bias if adjacency is None else layer(features, adjacency)

    return convolve, parameters


def forward(convolve, num_layers: int, adjacency, features, dropout: float, is_aggregated: bool):
    import torch.nn.functional as function

    if dropout > 0:
        features = function.dropout(features, dropout)
    for layer in range(num_layers):
        features = convolve(layer, None if is_aggregated and layer == 0 else adjacency, features)
        if layer + 1 < num_layers:
            features = function.dropout(function.relu(features), dropout)
    return features


def pyg_adjacency(graph: Graph):
    try:
        from torch_sparse import SparseTensor
    except (ImportError, OSError):
        return graph.adjacency.matrix
    adjacency = SparseTensor(rowptr=graph.begin, col=graph.columns, value=graph.values,
                             sparse_sizes=(graph.num_vertices, graph.num_vertices), is_sorted=True)
    return adjacency.fill_cache_()


def full_batches(settings: dict, graph: Graph):
    """batches() gives (adjacency, features, rows with a label, their labels): here the whole graph, once an epoch."""
    targets = graph.labels[graph.train]
    if settings["implementation"] == "pyg":
        adjacency = pyg_adjacency(graph)
        features = graph.features.matrix.to_dense() if isinstance(graph.features, Csr) else graph.features
    else:
        adjacency, features = graph.adjacency, graph.features
    if settings["caches"]:
        features = adjacency @ features
        graph.features = None  # its memory is free again
    return lambda: [(adjacency, features, graph.train, targets)]


def csr_batches(settings: dict, graph: Graph):
    """Uniform batches and their induced subgraphs by index selection; all but self loops times (N-1)/(S-1)."""
    import torch

    size, num_vertices = settings["batch"], graph.num_vertices
    num_batches = -(-num_vertices // size)
    local = torch.full((num_vertices,), -1)
    is_train = torch.zeros(num_vertices, dtype=torch.bool)
    is_train[graph.train] = True

    def subgraph(vertices):
        local[vertices] = torch.arange(len(vertices))
        counts = graph.begin[vertices + 1] - graph.begin[vertices]
        ends = counts.cumsum(0)
        at = torch.repeat_interleave(graph.begin[vertices] - ends + counts, counts) + torch.arange(int(ends[-1]))
        rows = torch.repeat_interleave(torch.arange(len(vertices)), counts)
        columns = local[graph.columns[at]]
        kept = columns >= 0
        rows, columns, values = rows[kept], columns[kept], graph.values[at[kept]]
        values[rows != columns] *= (num_vertices - 1) / (len(vertices) - 1)
        begin = torch.zeros(len(vertices) + 1, dtype=torch.int64)
        begin[1:] = torch.bincount(rows, minlength=len(vertices)).cumsum(0)
        local[vertices] = -1
        matrix = csr_tensor(begin, columns, values, (len(vertices), len(vertices)))
        return Csr(matrix, matrix)

    def batches():
        for vertices in torch.tensor_split(torch.randperm(num_vertices), num_batches):
            vertices = vertices.sort().values  # columns then stay sorted within a row
            chosen = is_train[vertices].nonzero().view(-1)
            yield subgraph(vertices), graph.features[vertices], chosen, graph.labels[vertices[chosen]]

    return batches


def pyg_batches(settings: dict, graph: Graph):
    """PyG's RandomNodeLoader; A^'s values are edge attributes that it selects, rescaled as above."""
    import torch
    from torch_geometric.data import Data
    from torch_geometric.loader import RandomNodeLoader

    num_vertices = graph.num_vertices
    rows = torch.repeat_interleave(torch.arange(num_vertices), graph.begin[1:] - graph.begin[:-1])
    is_train = torch.zeros(num_vertices, dtype=torch.bool)
    is_train[graph.train] = True
    data = Data(x=graph.features, y=graph.labels, is_train=is_train, edge_index=torch.stack([rows, graph.columns]),
                edge_weight=graph.values, num_nodes=num_vertices)
    loader = RandomNodeLoader(data, num_parts=-(-num_vertices // settings["batch"]), shuffle=True)

    def adjacency_of(batch):
        size = batch.num_nodes
        rows, columns = batch.edge_index
        values = torch.where(rows == columns, batch.edge_weight, batch.edge_weight * ((num_vertices - 1) / (size - 1)))
        try:
            from torch_sparse import SparseTensor
        except (ImportError, OSError):
            return torch.sparse_coo_tensor(batch.edge_index, values, (size, size)).to_sparse_csr()
        return SparseTensor(row=rows, col=columns, value=values, sparse_sizes=(size, size))

    def batches():
        for batch in loader:
            chosen = batch.is_train.nonzero().view(-1)
            yield adjacency_of(batch), batch.x, chosen, batch.y[chosen]

    return batches


def device_bytes() -> dict:
    """What torch gave to tensors at most, and what it took from the device for that."""
    import torch

    return {"peak_bytes": torch.cuda.max_memory_allocated(), "held_bytes": torch.cuda.max_memory_reserved()}


def train(settings: dict) -> dict:
    import torch

    is_cuda = settings["device"] == "cuda"
    torch.set_num_threads(settings["threads"])
    torch.manual_seed(settings["seed"])
    torch.backends.cuda.matmul.allow_tf32 = False
    is_pyg = settings["implementation"] == "pyg"
    graph = Graph(settings)
    convolve, parameters = (make_pyg_model if is_pyg else make_csr_model)(settings)
    optimizer = torch.optim.Adam(parameters, lr=settings["lr"])
    in_parts = pyg_batches if is_pyg else csr_batches
    batches = (full_batches if settings["mode"] == "full" else in_parts)(settings, graph)
    num_layers = len(settings["widths"]) - 1
    wait = torch.cuda.synchronize if is_cuda else lambda: None
    setup_bytes = peak_bytes()

    seconds, losses = [], []
    for _ in range(settings["epochs"]):
        wait()
        start = time.perf_counter()
        total, num_steps = 0.0, 0
        for adjacency, features, chosen, targets in batches():
            logits = forward(convolve, num_layers, adjacency, features, settings["dropout"], settings["caches"])
            loss = torch.nn.functional.cross_entropy(logits[chosen], targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, num_steps = total + loss.item(), num_steps + 1
        wait()
        seconds.append(time.perf_counter() - start)
        losses.append(total / num_steps)
    memory = device_bytes() if is_cuda else {"peak_bytes": peak_bytes(), "held_bytes": peak_bytes()}
    return {"seconds": seconds, "losses": losses, "setup_bytes": setup_bytes} | memory


def main() -> None:
    command, paths = sys.argv[1:2], [pathlib.Path(path) for path in sys.argv[2:]]
    if command == ["probe"] and not paths:
        print(json.dumps(probe()))
    elif command == ["prepare"] and len(paths) == 2:
        print(json.dumps(prepare(*paths)))
    elif command == ["train"] and len(paths) == 1:
        print(json.dumps(train(json.loads(paths[0].read_text()))))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
