# SPDX-License-Identifier: Apache-2.0
"""GraphSAGE (mean), GIN and GAT in PyTorch, as graph_model_peers.py trains them: layers of PyG and of DGL, and plain torch.

  sage   Q = D^-1 A F W + F W' + b          gin   Q = relu((A F + (1 + epsilon) F) W + b) W'' + b''
  gat    Q = alpha F W + b, alpha_ij = softmax_j leaky(<a_row, Z_i> + <a_column, Z_j>) over A + I, Z = F W, for every head

A without self loops. Between layers ReLU, of gat ELU. The heads of gat's last layer are averaged. Every model is made of the arrays that
`orthant train --save-weights` writes, so that all begin alike.
"""

from __future__ import annotations

import torch
from torch.nn import Linear, Parameter, ReLU, Sequential
from torch.nn.functional import elu, leaky_relu

SLOPE = 0.2  # of GAT's leaky ReLU


class Weights:
    """The arrays of a weights file by their names there."""

    def __init__(self, path):
        import h5py

        with h5py.File(path) as file:
            self.arrays = {name: torch.from_numpy(array[()]).float() for name, array in file["parameters"].items()}
        self.num_layers = sum(name.endswith(".weight") and name.startswith("layer") and ".second" not in name for name in self.arrays)

    def of(self, layer: int, part: str):
        return self.arrays[f"layer{layer}.{part}"]

    def second_of(self, layer: int) -> tuple:
        """W'' and b'' of GIN; those of the last layer are the head."""
        name = "head" if layer + 1 == self.num_layers else f"layer{layer}.second"
        return self.arrays[f"{name}.weight"], self.arrays[f"{name}.bias"].reshape(-1)

    def heads_of(self, layer: int) -> tuple:
        """(a_row, a_column) of GAT, [heads x columns of a head] each."""
        both = self.of(layer, "attention")
        width = both.shape[1] // 2
        return both[:, :width], both[:, width:]


def filled(linear: Linear, weight, bias=None) -> Linear:
    with torch.no_grad():
        linear.weight.copy_(weight.t())
        if bias is not None:
            linear.bias.copy_(bias.reshape(-1))
    return linear


def perceptron(weights: Weights, layer: int) -> Sequential:
    weight, (second, second_bias) = weights.of(layer, "weight"), weights.second_of(layer)
    return Sequential(filled(Linear(*weight.shape), weight, weights.of(layer, "bias")), ReLU(),
                      filled(Linear(*second.shape), second, second_bias))


def copy_into(*pairs) -> None:
    with torch.no_grad():
        for to, value in pairs:
            to.copy_(value.reshape(to.shape))


# --- layers of the libraries ----------------------------------------------------------------------------------------------


class OfLibrary(torch.nn.Module):
    """Layers that are called as layer(edges, hidden); forward() gives the logits."""

    def __init__(self, model: str, layers: list, call):
        super().__init__()
        self.layers, self.call = torch.nn.ModuleList(layers), call
        self.activation = elu if model == "gat" else torch.relu

    def forward(self, features):
        hidden = features
        for number, layer in enumerate(self.layers):
            hidden = self.call(layer, hidden, number + 1 == len(self.layers))
            if number + 1 < len(self.layers):
                hidden = self.activation(hidden)
        return hidden


def pyg_model(model: str, weights: Weights, edges, adds_self_loops: bool = True) -> OfLibrary:
    """adds_self_loops: gat adds them in every epoch, which is its default."""
    from torch_geometric.nn import GATConv, GINConv, SAGEConv

    layers = []
    for number in range(weights.num_layers):
        weight = weights.of(number, "weight")
        if model == "sage":
            layer = SAGEConv(*weight.shape)
            filled(layer.lin_l, weight, weights.of(number, "bias")), filled(layer.lin_r, weights.of(number, "self_weight"))
        elif model == "gin":
            layer = GINConv(perceptron(weights, number), train_eps=True)
            layer.nn.load_state_dict(perceptron(weights, number).state_dict())  # the constructor has drawn others
            copy_into((layer.eps, weights.of(number, "epsilon")))
        else:
            of_row, of_column = weights.heads_of(number)
            is_last = number + 1 == weights.num_layers
            layer = GATConv(weight.shape[0], of_row.shape[1], heads=of_row.shape[0], concat=not is_last, add_self_loops=adds_self_loops)
            copy_into((layer.lin.weight, weight.t()), (layer.att_dst, of_row), (layer.att_src, of_column), (layer.bias, weights.of(number, "bias")))
        layers.append(layer)
    return OfLibrary(model, layers, lambda layer, hidden, is_last: layer(hidden, edges))


def dgl_model(model: str, weights: Weights, graph) -> OfLibrary:
    from dgl.nn import GATConv, GINConv, SAGEConv

    layers = []
    for number in range(weights.num_layers):
        weight = weights.of(number, "weight")
        if model == "sage":
            layer = SAGEConv(*weight.shape, "mean")
            filled(layer.fc_neigh, weight), filled(layer.fc_self, weights.of(number, "self_weight"), weights.of(number, "bias"))
        elif model == "gin":
            layer = GINConv(perceptron(weights, number), "sum", learn_eps=True)
            copy_into((layer.eps, weights.of(number, "epsilon")))
        else:
            of_row, of_column = weights.heads_of(number)
            layer = GATConv(weight.shape[0], of_row.shape[1], of_row.shape[0], negative_slope=SLOPE)
            bias = weights.of(number, "bias")
            copy_into((layer.fc.weight, weight.t()), (layer.attn_r, of_row), (layer.attn_l, of_column),
                      (layer.bias, bias if bias.numel() == layer.bias.numel() else bias.repeat(of_row.shape[0])))
        layers.append(layer)

    def call(layer, hidden, is_last):
        out = layer(graph, hidden)
        return out if model != "gat" else out.mean(1) if is_last else out.flatten(1)

    return OfLibrary(model, layers, call)


# --- plain torch around a sparse product -----------------------------------------------------------------------------------


class ByHand(torch.nn.Module):
    """Multiplies by A where rows are narrower, adds in place, and keeps A F of the first layer from epoch to epoch.

    aggregate(H): D^-1 A H of sage, A H of gin. times_features(W): X W if X is sparse, else None; A F is then not kept.
    """

    def __init__(self, model: str, weights: Weights, aggregate, features, times_features, caches: bool):
        super().__init__()
        self.model, self.aggregate, self.times_features = model, aggregate, times_features
        names = {"sage": ("weight", "self_weight", "bias"), "gin": ("weight", "bias", "epsilon")}[model]
        self.parts = [{name: Parameter(weights.of(number, name).reshape(-1) if name in ("bias", "epsilon") else weights.of(number, name))
                       for name in names} for number in range(weights.num_layers)]
        if model == "gin":
            for number, part in enumerate(self.parts):
                part["second"], part["second_bias"] = map(Parameter, weights.second_of(number))
        for number, part in enumerate(self.parts):
            for name, parameter in part.items():
                self.register_parameter(f"{name}{number}", parameter)
        with torch.no_grad():
            self.kept = aggregate(features) if caches and features is not None else None

    def of_neighbours(self, number: int, hidden, weight):
        """A H W, and whether it is A H instead, which is no wider."""
        if number == 0 and self.times_features:
            return self.aggregate(self.times_features(weight)), False
        if number == 0 and self.kept is not None:
            return self.kept, True
        if weight.shape[0] <= weight.shape[1]:
            return self.aggregate(hidden), True
        return self.aggregate(hidden @ weight), False

    def sage(self, number: int, hidden, part):
        aggregated, is_input = self.of_neighbours(number, hidden, part["weight"])
        if number == 0 and self.times_features:
            own = self.times_features(part["self_weight"]).add_(part["bias"])
        else:
            own = torch.addmm(part["bias"], hidden, part["self_weight"])
        return own.addmm_(aggregated, part["weight"]) if is_input else own.add_(aggregated)

    def gin(self, number: int, hidden, part):
        factor = 1 + part["epsilon"]
        if number == 0 and self.times_features:
            product = self.times_features(part["weight"])
            inner = self.aggregate(product).add_(product * factor).add_(part["bias"])
        else:
            sums = self.kept if number == 0 and self.kept is not None else self.aggregate(hidden)
            inner = torch.addmm(part["bias"], torch.addcmul(sums, hidden, factor), part["weight"])
        return torch.addmm(part["second_bias"], inner.relu_(), part["second"])

    def forward(self, features):
        hidden, layer = features, getattr(self, self.model)
        for number, part in enumerate(self.parts):
            hidden = layer(number, hidden, part)
            if number + 1 < len(self.parts):
                hidden = hidden.relu_()
        return hidden


class AttentionByHand(torch.nn.Module):
    """GAT of a sum of rows per head: weighted(values [heads x edges], Z [heads x vertices x columns]) with gradients of both.

    pattern: rows, columns and the begin of every row of A + I, edges in the order of rows.
    """

    def __init__(self, weights: Weights, weighted, pattern, times_features):
        super().__init__()
        self.weighted, self.times_features = weighted, times_features
        self.rows, self.columns, self.begin = pattern
        self.parts = []
        for number in range(weights.num_layers):
            of_row, of_column = weights.heads_of(number)
            part = {"weight": weights.of(number, "weight"), "bias": weights.of(number, "bias").reshape(-1), "of_row": of_row.clone(), "of_column": of_column.clone()}
            self.parts.append({name: Parameter(value) for name, value in part.items()})
            for name, parameter in self.parts[-1].items():
                self.register_parameter(f"{name}{number}", parameter)

    def shares(self, scores):
        """Softmax over the edges of a row, [edges x heads]."""
        lengths = self.begin.diff()
        largest = torch.segment_reduce(scores.detach(), "max", offsets=self.begin)
        powers = (scores - largest.repeat_interleave(lengths, dim=0, output_size=len(scores))).exp()
        sums = torch.segment_reduce(powers, "sum", offsets=self.begin)
        return powers / sums.repeat_interleave(lengths, dim=0, output_size=len(scores))

    def forward(self, features):
        hidden = features
        for number, part in enumerate(self.parts):
            num_heads, width = part["of_row"].shape
            product = self.times_features(part["weight"]) if number == 0 and self.times_features else hidden @ part["weight"]
            z = product.view(-1, num_heads, width)
            of_rows, of_columns = (z * part["of_row"]).sum(-1), (z * part["of_column"]).sum(-1)
            scores = leaky_relu(of_rows.index_select(0, self.rows) + of_columns.index_select(0, self.columns), SLOPE)
            sums = self.weighted(self.shares(scores).t().contiguous(), z.transpose(0, 1).contiguous())
            if number + 1 == len(self.parts):
                return sums.mean(0) + part["bias"]
            hidden = elu(sums.transpose(0, 1).reshape(-1, num_heads * width) + part["bias"])
