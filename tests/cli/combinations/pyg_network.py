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
        self.features = None

    def logits(self, x):
        self.features = x
        f = self.linear("input", x) if "input.weight" in self.parameters else x
        return {"sgc": self.sgc, "appnp": self.appnp, "gcnii": self.gcnii}.get(self.settings["model"], self.convolutions)(f)

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

    def hidden(self, name, z, f):
        """Norm, activation and residual of a layer with the input `f`."""
        return self.around(name, self.activation(self.norm(name, z)), f)

    def around(self, name, z, f):
        """Adds the input of the layer, or its product with a weight; nothing to a layer of features without such a weight."""
        weight = self.parameters.get(f"{name}.residual.weight")
        if weight is not None:
            return z + f @ weight
        is_added = self.settings["residual"] != "none" and z.shape == f.shape and f is not self.features
        return z + f if is_added else z

    def head(self, outputs):
        """The head of the last hidden layer, or of all by jumping knowledge (arXiv 1806.03536). `outputs`: {name of the layer: output}."""
        kind, (*names, last) = self.settings["jump"], outputs
        if not self.has_head:
            return outputs[last]
        if kind == "none":
            return self.linear("head", outputs[last])
        if kind == "mean":
            return self.linear("head", torch.stack(list(outputs.values())).mean(0))
        joined = pyg.JumpingKnowledge(kind)(list(outputs.values()))
        if kind == "max":
            return self.linear("head", joined)
        weight = torch.cat([*(self.parameters[f"{name}.jump.weight"] for name in names), self.parameters["head.weight"]])
        return functional.linear(joined, weight.T, self.parameters.get("head.bias"))

    # Networks

    def convolutions(self, f):
        settings, outputs = self.settings, {}
        for l in range(settings["layers"]):
            name = f"layer{l}"
            is_last = l + 1 == settings["layers"]
            if settings["model"] == "gin":
                if is_last and settings["jump"] == "none":
                    return self.gin(name, "head", f)
                f = self.around(name, self.activation(self.gin(name, f"{name}.second", f)), f)
            else:
                makes_logits = is_last and not self.has_head
                z = getattr(self, settings["model"])(name, f, makes_logits)
                f = z if makes_logits else self.hidden(name, z, f)
            outputs[name] = f
        return self.head(outputs)

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

    def transformer(self, name, f, makes_logits):
        """Keys have no bias: it would add the same number to all scores of a row."""
        weight, shifts = self.parameters[f"{name}.weight"].T, self.parameters[f"{name}.attention"]
        heads, width = shifts.shape[0], shifts.shape[1] // 2
        layer = pyg.TransformerConv(weight.shape[1], width, heads, concat=not makes_logits)
        given = dict(zip(("lin_value.weight", "lin_key.weight", "lin_query.weight", "lin_skip.weight"), weight.split(heads * width)))
        bias = self.parameters.get(f"{name}.bias", torch.zeros(given["lin_skip.weight"].shape[0], dtype=f.dtype))
        given |= {"lin_value.bias": shifts[:, :width].flatten(), "lin_query.bias": shifts[:, width:].flatten(),
                  "lin_key.bias": torch.zeros(heads * width, dtype=f.dtype), "lin_skip.bias": bias}
        return self.call(layer, given, f, self.edges)

    def tag(self, name, f, _):
        weight = self.parameters[f"{name}.weight"]
        steps = self.settings["propagation-steps"] or 3
        width = weight.shape[1] // (steps + 1)
        layer = pyg.TAGConv(weight.shape[0], width, steps, bias=f"{name}.bias" in self.parameters)
        weights = {f"lins.{k}.weight": weight[:, k * width:(k + 1) * width].T for k in range(steps + 1)}
        return self.call(layer, self.given(name) | weights, f, self.edges, self.weights)

    # Models that propagate after dense layers

    def perceptron(self, f):
        """The hidden layers before the last dense one: what the last one gives, the name of that dense layer, and all their outputs."""
        last, outputs = self.settings["layers"] - 1, {}
        for l in range(last):
            f = outputs[f"layer{l}"] = self.hidden(f"layer{l}", self.linear(f"layer{l}", f), f)
        return f, f"layer{last}", outputs

    def sgc(self, f):
        f, last, outputs = self.perceptron(f)
        weight, bias = self.parameters[f"{last}.weight"], self.parameters.get(f"{last}.bias")
        layer = pyg.SGConv(*weight.shape, K=self.settings["propagation-steps"] or 2, bias=bias is not None)
        outputs["last"] = self.call(layer, {"lin.weight": weight.T} | ({} if bias is None else {"lin.bias": bias}), f, self.edges, self.weights)
        return self.head(outputs)

    def appnp(self, f):
        f, last, outputs = self.perceptron(f)
        start = self.linear(last, f)
        outputs["last"] = pyg.APPNP(self.settings["propagation-steps"] or 10, self.settings["teleport"])(start, self.edges, self.weights)
        return self.head(outputs)

    def gcnii(self, f):
        f = start = self.hidden("layer0", self.linear("layer0", f), f)
        outputs = {"layer0": f}
        for l in range(1, self.settings["layers"] + 1):
            layer = pyg.GCN2Conv(f.shape[1], self.settings["teleport"], self.settings["theta"], l)
            z = self.call(layer, {"weight1": self.parameters[f"layer{l}.weight"]}, f, start, self.edges, self.weights)
            f = outputs[f"layer{l}"] = self.hidden(f"layer{l}", z, f)
        return self.head(outputs)
