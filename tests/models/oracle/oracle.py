# SPDX-License-Identifier: Apache-2.0
"""python3 oracle.py [--check]: losses and gradient norms of small GCNs by NumPy, from their definitions alone.

Writes figures.json and the graph in blocks/ beside this file; --check compares with what is there instead.
Nothing of Orthant is run or imported. Only forward passes are written down, on whole dense matrices in double;
each derivative is Im L(w + i h) / h with h = 1e-30, the complex step, which rounds but does not truncate:

    Z_l = A~ F_l W_l + 1 b^T                        A^ = D^-1/2 (A + I) D^-1/2, D the row sums of A + I
    Z'  = Z_l / sqrt(mean of Z_l^2 over a row + 1e-6) g     with a norm
    F_{l+1} = dropout(max(Z', 0)) (+ F_l with residuals, where both are equally wide and F_l is not X)
    L   = mean over the training vertices of -log softmax(logits)[label]

The last layer gives the logits, or a head F_L W + 1 b^T does; a projection X W + 1 b^T comes before layer 0. X
is dropped out unless there is a projection. A full-graph step has A~ = A^. A mini-batch step has T batches (of all
data groups and accumulations), L over the training vertices of them all, and for each batch S the entries of A^
on S x S, those off the diagonal times (N_b - [a = b]) / (n_b - [a = b]), a and b the strata of row and column, N_b
the stratum's vertices and n_b those in S.

Random numbers are Philox (Salmon et al., SC'11), written here from the paper; which counters and keys mean what is
the convention of src/runtime/numbers/random.hpp and src/sampling/vertex_sampler.hpp.
Parameters start as in tests/models/formula_parameters.hpp.
"""

import json
import pathlib
import re
import sys

import numpy as np

import graphs
import keyed

RMS_EPSILON = 1e-6
STEP = 1e-30


def formula_parameters(names_and_shapes):
    """The numbers of formula_parameters.hpp, by name."""
    parameters = {}
    for p, (name, shape) in enumerate(names_and_shapes):
        rows, columns = shape if len(shape) == 2 else (1, shape[0])
        i, j = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
        k = (31 * i * i + 6007 * i * j + 7919 * i + 38183 * j + 104729 * p + 12345) % 100003
        u = 2 * k / 100003 - 1
        if name.endswith(".norm"):
            u = 1 + u / 4
        elif len(shape) == 1:
            u = u / 8
        else:
            u = np.sqrt(6 / (rows + columns)) * u
        parameters[name] = u.reshape(shape)
    return parameters


def shapes_of(model, num_features, num_classes):
    """Names and shapes of all parameters, in the order of the program's list."""
    projected, hidden, has_head = model["projected_width"], model["hidden_widths"], model["has_head"]
    widths = [projected or num_features] + hidden + ([] if has_head else [num_classes])
    shapes = []

    def add(name, rows, columns):
        shapes.append((name + ".weight", (rows, columns)))
        if model["has_bias"]:
            shapes.append((name + ".bias", (columns,)))

    if projected:
        add("input", num_features, projected)
    num_layers = len(widths) - 1
    for l in range(num_layers):
        add(f"layer{l}", widths[l], widths[l + 1])
        if model["norm"] == "rms" and (has_head or l + 1 < num_layers):
            shapes.append((f"layer{l}.norm", (widths[l + 1],)))
    if has_head:
        add("head", widths[-1], num_classes)
    return shapes


def logits_of(model, parameters, matrix, features, masks):
    """masks[l]: what dropout multiplies the input (0) or the output of layer l - 1 by; empty: no dropout."""
    def affine(x, name):
        bias = parameters.get(name + ".bias")
        return x @ parameters[name + ".weight"] + (0 if bias is None else bias)

    has_projection, has_head = model["projected_width"] > 0, model["has_head"]
    x = features
    if has_projection:
        x = affine(x, "input")
    elif masks:
        x = x * masks[0]
    num_layers = len(model["hidden_widths"]) + (0 if has_head else 1)
    for l in range(num_layers):
        z = affine(matrix @ x, f"layer{l}")
        if not has_head and l + 1 == num_layers:
            return z
        if model["norm"] == "rms":
            z = z / np.sqrt((z * z).mean(axis=1, keepdims=True) + RMS_EPSILON) * parameters[f"layer{l}.norm"]
        out = np.where(z.real > 0, z, 0)
        if masks:
            out = out * masks[l + 1]
        is_residual = model["has_residuals"] and out.shape[1] == x.shape[1] and (l > 0 or has_projection)
        x = out + x if is_residual else out
    return affine(x, "head")


def losses_of(logits, labels):
    shifted = logits - logits.real.max(axis=1, keepdims=True)
    return np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(labels)), labels]


def gradients_of(loss_at, parameters):
    """d loss / d parameter by the complex step."""
    gradients = {}
    for name, value in parameters.items():
        gradient = np.zeros(value.shape)
        for place in np.ndindex(value.shape):
            moved = value.astype(complex)
            moved[place] += 1j * STEP
            gradient[place] = loss_at({**parameters, name: moved}).imag / STEP
        gradients[name] = gradient
    return gradients


def is_decayed(name):
    return name.endswith(".weight")


class Optimizer:
    def __init__(self, training):
        self.training = training
        self.first, self.second, self.num_steps = {}, {}, 0

    def step(self, parameters, gradients):
        t = self.training
        self.num_steps += 1
        clip, total = t.get("clip_norm"), np.sqrt(sum((g * g).sum() for g in gradients.values()))
        factor = min(1.0, clip / (total + 1e-6)) if clip else 1.0  # as in torch.nn.utils.clip_grad_norm_
        for name, value in parameters.items():
            decay = t["weight_decay"] if is_decayed(name) else 0.0
            if name == "layer0.weight":
                decay = t.get("weight_decay_first_layer", decay)
            g = gradients[name] * factor
            rate = t["learning_rate"]
            if t["optimizer"] == "sgd":
                m = t["momentum"] * self.first.get(name, 0) + g + decay * value
                self.first[name] = m
                parameters[name] = value - rate * m
                continue
            if t["optimizer"] == "adamw":
                value = value - rate * decay * value
            else:
                g = g + decay * value
            m = 0.9 * self.first.get(name, 0) + 0.1 * g
            v = 0.999 * self.second.get(name, 0) + 0.001 * g * g
            self.first[name], self.second[name] = m, v
            m_hat, v_hat = m / (1 - 0.9**self.num_steps), v / (1 - 0.999**self.num_steps)
            parameters[name] = value - rate * m_hat / (np.sqrt(v_hat) + 1e-8)


def masks_of(model, seed, step, vertices, num_features):
    """Dropout of each vertex's features: of the input, and of every layer that is activated."""
    if model["dropout"] == 0:
        return []
    widths = [num_features] + model["hidden_widths"]
    return [keyed.dropout_mask(seed, step, layer, vertices, width, model["dropout"])
            for layer, width in enumerate(widths)]


def sampled_matrix(matrix, vertices, strata, stratum_of, in_batch):
    a, b = stratum_of[vertices][:, None], stratum_of[vertices][None, :]
    same = a == b
    factor = (np.array(strata)[b] - same) / np.maximum(np.array(in_batch)[b] - same, 1)
    np.fill_diagonal(factor, 1)
    return matrix[np.ix_(vertices, vertices)] * factor


def norms_of(arrays):
    return {name: float(np.sqrt((array * array).sum())) for name, array in arrays.items()}


def record_of(loss, gradients):
    return {"loss": float(loss.real), "grad_norms": norms_of(gradients)}


def run_full(case, graph):
    model, training, seed = case["model"], case["training"], case["seed"]
    parameters = formula_parameters(shapes_of(model, graph.num_features, graph.num_classes))
    optimizer, epochs = Optimizer(training), []
    for epoch in range(1, training["num_epochs"] + 1):
        masks = masks_of(model, seed, epoch, np.arange(graph.num_vertices), graph.num_features)

        def loss_at(p, masks=masks):
            logits = logits_of(model, p, graph.matrix, graph.features, masks)
            return losses_of(logits[graph.train], graph.labels[graph.train]).mean()

        gradients = gradients_of(loss_at, parameters)
        record = record_of(loss_at(parameters), gradients)
        optimizer.step(parameters, gradients)
        logits = logits_of(model, parameters, graph.matrix, graph.features, [])
        for split, vertices in (("train", graph.train), ("valid", graph.valid), ("test", graph.test)):
            record[split + "_loss"] = float(losses_of(logits[vertices], graph.labels[vertices]).mean())
            record[split + "_correct"] = int((logits[vertices].argmax(axis=1) == graph.labels[vertices]).sum())
        epochs.append(record)
    return {"epochs": epochs, "final_norms": norms_of(parameters)}


def run_batches(case, graph):
    model, training, seed = case["model"], case["training"], case["seed"]
    parameters = formula_parameters(shapes_of(model, graph.num_features, graph.num_classes))
    sampler = keyed.VertexSampler(seed, case["batch_size"], case["batches_per_step"],
                                  case.get("train_fraction"), graph.num_vertices, graph.train)
    optimizer, steps, trains = Optimizer(training), [], np.isin(np.arange(graph.num_vertices), graph.train)
    for epoch in range(1, training["num_epochs"] + 1):
        for first in range(0, sampler.num_batches, case["batches_per_step"]):
            batches = []
            for index in range(first, first + case["batches_per_step"]):
                vertices, in_batch = sampler.draw(epoch, index)
                matrix = sampled_matrix(graph.matrix, vertices, sampler.strata, sampler.stratum_of, in_batch)
                masks = masks_of(model, seed, (index + 1) << 32 | epoch, vertices, graph.num_features)
                batches.append((vertices, matrix, masks))
            num_trained = sum(trains[vertices].sum() for vertices, _, _ in batches)

            def loss_at(p, batches=batches, num_trained=num_trained):
                total = 0
                for vertices, matrix, masks in batches:
                    logits = logits_of(model, p, matrix, graph.features[vertices], masks)
                    mine = trains[vertices]
                    total = total + losses_of(logits[mine], graph.labels[vertices][mine]).sum()
                return total / num_trained

            gradients = gradients_of(loss_at, parameters)
            record = record_of(loss_at(parameters), gradients)
            record["batches"] = [sorted(int(v) for v in vertices) for vertices, _, _ in batches]
            steps.append(record)
            optimizer.step(parameters, gradients)
    return {"steps": steps, "steps_per_epoch": sampler.num_batches // case["batches_per_step"],
            "final_norms": norms_of(parameters)}


def model(**changes):
    return {"projected_width": 0, "hidden_widths": [8], "has_head": False, "has_bias": True, "norm": "none",
            "has_residuals": False, "dropout": 0.0, **changes}


def training(**changes):
    return {"optimizer": "adam", "learning_rate": 0.01, "weight_decay": 0.0, "num_epochs": 10, **changes}


ALL_PARTS = model(projected_width=6, hidden_widths=[6, 6], has_head=True, norm="rms", has_residuals=True,
                  dropout=0.3)

FULL_CASES = [
    {"name": "karate", "graph": "karate", "seed": 1, "model": model(has_bias=False),
     "training": training(weight_decay_first_layer=5e-3)},
    {"name": "karate_dropout", "graph": "karate", "seed": 7, "model": model(dropout=0.5), "training": training()},
    {"name": "blocks_three_layers", "graph": "blocks", "seed": 1, "model": model(hidden_widths=[8, 6]),
     "training": training(weight_decay=1e-3, num_epochs=20)},
    {"name": "blocks_all_parts", "graph": "blocks", "seed": 11, "model": ALL_PARTS,
     "training": training(optimizer="adamw", weight_decay=0.1)},
    {"name": "blocks_clipped_sgd", "graph": "blocks", "seed": 1, "model": model(),
     "training": training(optimizer="sgd", learning_rate=0.5, momentum=0.9, weight_decay=1e-3, clip_norm=0.05)},
]

BATCH_CASES = [
    {"name": "one_batch_per_step", "graph": "blocks", "seed": 5, "batch_size": 30, "batches_per_step": 1,
     "model": model(), "training": training(num_epochs=2)},
    {"name": "one_step_per_epoch", "graph": "blocks", "seed": 6, "batch_size": 30, "batches_per_step": 4,
     "model": model(hidden_widths=[8, 6]), "training": training(num_epochs=6, weight_decay=1e-3)},
    {"name": "two_strata", "graph": "blocks", "seed": 7, "batch_size": 26, "batches_per_step": 2,
     "train_fraction": 0.4, "model": model(), "training": training(num_epochs=6)},
    {"name": "two_strata_four_batches", "graph": "blocks", "seed": 9, "batch_size": 20, "batches_per_step": 4,
     "train_fraction": 0.5, "model": model(), "training": training(num_epochs=6)},
    {"name": "all_parts_and_dropout", "graph": "blocks", "seed": 8, "batch_size": 26, "batches_per_step": 2,
     "train_fraction": 0.2, "model": ALL_PARTS, "training": training(num_epochs=2, weight_decay=1e-3)},
]


def same(found, expected):
    """Equal but for rounding in other versions of NumPy."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[k], expected[k]) for k in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, float):
        return abs(found - expected) <= 1e-12 * max(1, abs(expected))
    return found == expected


def main():
    here = pathlib.Path(__file__).parent
    is_check = sys.argv[1:] == ["--check"]
    if not is_check:
        graphs.write_blocks(here / "blocks")
    loaded = {name: graphs.load(name, here) for name in ("karate", "blocks")}
    figures = {"full": [{**case, **run_full(case, loaded[case["graph"]])} for case in FULL_CASES],
               "mini_batch": [{**case, **run_batches(case, loaded[case["graph"]])} for case in BATCH_CASES]}
    file = here / "figures.json"
    if is_check:
        sys.exit(0 if same(figures, json.loads(file.read_text())) else "figures.json holds other figures")
    text = json.dumps(figures, indent=1)
    file.write_text(re.sub(r"\[\s+([-\d\s,]+?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text) + "\n")


if __name__ == "__main__":
    main()
