# SPDX-License-Identifier: Apache-2.0
"""Networks of PyTorch Geometric's layers, with the parameters of a weights file of the program (docs/weights.md).

The network is that of docs/graph_models.md. A matrix of the file is [inputs x outputs], the transpose of PyTorch's.
"""

import torch
import torch_geometric.nn as pyg
from torch.func import functional_call
from torch.nn import functional

ACTIVATIONS = {"relu": functional.relu, "elu": functional.elu, "gelu": functional.gelu, "silu": functional.silu,
               "leaky_relu": functional.leaky_relu, "tanh": torch.tanh}


class Network:
    """`settings`: options of train by name, with the values of `DEFAULTS` if absent. `parameters`: {name: tensor}."""

    DEFAULTS = {"aggregator": "mean", "activation": "relu", "norm": "none", "residual": "none", "jump": "none", "layers": 2, "heads": 8,
                "output-heads": 1, "propagation-steps": None, "teleport": 0.1, "theta": 0.5, "normalize": "auto", "head": False,
                "input-projection": False}

    def __init__(self, settings, parameters, edges, edge_weights):
        self.settings = self.DEFAULTS | settings
        self.parameters = parameters
        self.edges = edges
        self.weights = edge_weights
        self.activation = ACTIVATIONS[self.settings["activation"]]
        self.has_head = "head.weight" in parameters

    def logits(self, x):
        return {"sgc": self.sgc, "appnp": self.appnp, "gcnii": self.gcnii}.get(self.settings["model"], self.convolutions)(x)

    # Parts

    def linear(self, name, x):
        return functional.linear(x, self.parameters[f"{name}.weight"].T, self.parameters.get(f"{name}.bias"))

    def norm(self, name, z):
        of = lambda leaf: self.parameters.get(f"{name}.norm{leaf}")
        if of("") is None:
            return z
        kind, width = self.settings["norm"], z.shape[1]
        if kind == "rms":
            return functional.rms_norm(z, (width,), of(""), 1e-6)
        if kind == "layer":
            return functional_call(pyg.LayerNorm(width, mode="node"), {"weight": of(""), "bias": of("_shift")}, (z,), strict=True)
        return functional_call(pyg.BatchNorm(width), {"module.weight": of(""), "module.bias": of("_shift")}, (z,))

    def hidden(self, name, z, before):
        """Norm, activation and residual. `before`: the input of the layer, or None if nothing goes around it."""
        return self.around(name, self.activation(self.norm(name, z)), before)

    def around(self, name, z, before):
        kind = self.settings["residual"]
        if kind == "none" or before is None:
            return z
        projection = self.parameters.get(f"{name}.residual.weight")
        if projection is not None:
            return z + before @ projection
        return z + before if z.shape == before.shape else z

    def joined(self, outputs):
        """Jumping knowledge (arXiv 1806.03536) over the outputs of the hidden layers, or the last of them."""
        kind = self.settings["jump"]
        if kind == "none":
            return outputs[-1]
        if kind == "mean":
            return torch.stack(outputs).mean(0)
        return pyg.JumpingKnowledge(kind)(outputs)

    # Networks

    def convolutions(self, x):
        layers = self.settings["layers"]
        has_projection = "input.weight" in self.parameters
        f = self.linear("input", x) if has_projection else x
        outputs = []
        for l in range(layers):
            name = f"layer{l}"
            if self.settings["model"] == "gin":
                if l + 1 == layers:
                    return self.gin(name, "head", self.joined([*outputs, f]) if self.settings["jump"] != "none" else f)
                z = self.gin(name, f"{name}.second", f)
                f = self.around(name, self.activation(z), f if l > 0 or has_projection else None)
            else:
                makes_logits = l + 1 == layers and not self.has_head
                z = getattr(self, self.settings["model"])(name, f, makes_logits)
                if makes_logits:
                    return z
                f = self.hidden(name, z, f if l > 0 or has_projection else None)
            outputs.append(f)
        return self.linear("head", self.joined(outputs))

    def given(self, name, **entries):
        """Parameters of a layer by PyTorch Geometric's names, and its bias."""
        bias = self.parameters.get(f"{name}.bias")
        return {key.replace("__", "."): value for key, value in entries.items()} | ({} if bias is None else {"bias": bias})

    def call(self, layer, parameters, *arguments):
        return functional_call(layer.double(), parameters, arguments, strict=True)

    def gcn(self, name, f, _):
        weight = self.parameters[f"{name}.weight"]
        has_bias = f"{name}.bias" in self.parameters
        layer = pyg.GCNConv(*weight.shape, bias=has_bias, normalize=self.settings["normalize"] != "none")
        return self.call(layer, self.given(name, lin__weight=weight.T), f, self.edges, self.weights)

    def sage(self, name, f, _):
        weight, own, bias = (self.parameters.get(f"{name}.{leaf}") for leaf in ("weight", "self_weight", "bias"))
        layer = pyg.SAGEConv(*weight.shape, aggr=self.settings["aggregator"], bias=bias is not None)
        biases = {} if bias is None else {"lin_l.bias": bias}
        return self.call(layer, {"lin_l.weight": weight.T, "lin_r.weight": own.T} | biases, f, self.edges)

    def graphconv(self, name, f, _):
        weight, own, bias = (self.parameters.get(f"{name}.{leaf}") for leaf in ("weight", "self_weight", "bias"))
        layer = pyg.GraphConv(*weight.shape, aggr=self.settings["aggregator"], bias=bias is not None)
        biases = {} if bias is None else {"lin_rel.bias": bias}
        return self.call(layer, {"lin_rel.weight": weight.T, "lin_root.weight": own.T} | biases, f, self.edges, self.weights)

    def gin(self, name, second, f):
        """GINConv with a perceptron that has a norm and an activation between its layers."""

        def perceptron(h):
            return self.linear(second, self.activation(self.norm(name, self.linear(name, h))))

        layer = pyg.GINConv(perceptron, train_eps=True)
        return self.call(layer, {"eps": self.parameters[f"{name}.epsilon"]}, f, self.edges)

    def gat(self, name, f, makes_logits):
        weight, vectors = self.parameters[f"{name}.weight"], self.parameters[f"{name}.attention"]
        heads, width = vectors.shape[0], vectors.shape[1] // 2
        layer = pyg.GATConv(weight.shape[0], width, heads, concat=not makes_logits, bias=f"{name}.bias" in self.parameters)
        return self.call(layer, self.given(name, lin__weight=weight.T, att_dst=vectors[None, :, :width], att_src=vectors[None, :, width:]),
                         f, self.edges)

    def gatv2(self, name, f, makes_logits):
        weight, vectors = self.parameters[f"{name}.weight"].T, self.parameters[f"{name}.attention"]
        heads, width = vectors.shape
        layer = pyg.GATv2Conv(weight.shape[1], width, heads, concat=not makes_logits, bias=False)
        source, target = weight[:heads * width], weight[heads * width:]
        z = self.call(layer, {"lin_l.weight": source, "lin_r.weight": target, "att": vectors[None]}, f, self.edges)
        bias = self.parameters.get(f"{name}.bias")
        return z if bias is None else z + bias

    def sgc(self, x):
        weight = self.parameters["layer0.weight"]
        layer = pyg.SGConv(*weight.shape, K=self.settings["propagation-steps"] or 2, bias="layer0.bias" in self.parameters)
        bias = {"lin.bias": self.parameters["layer0.bias"]} if "layer0.bias" in self.parameters else {}
        return self.call(layer, {"lin.weight": weight.T} | bias, x, self.edges, self.weights)

    def appnp(self, x):
        f = x
        for l in range(self.settings["layers"] - 1):
            f = self.hidden(f"layer{l}", self.linear(f"layer{l}", f), f if l > 0 else None)
        f = self.linear(f"layer{self.settings['layers'] - 1}", f)
        return pyg.APPNP(self.settings["propagation-steps"] or 10, self.settings["teleport"])(f, self.edges, self.weights)

    def gcnii(self, x):
        f = start = self.hidden("layer0", self.linear("layer0", x), None)
        outputs = []
        for l in range(1, self.settings["layers"] + 1):
            layer = pyg.GCN2Conv(f.shape[1], self.settings["teleport"], self.settings["theta"], l)
            z = self.call(layer, {"weight1": self.parameters[f"layer{l}.weight"]}, f, start, self.edges, self.weights)
            f = self.hidden(f"layer{l}", z, f)
            outputs.append(f)
        return self.linear("head", self.joined(outputs))
