#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random combinations of train's options on two grids and schedules: on_grids.py PROGRAM GRAPH_MODELS_MD COUNT [SEED ..]

Draws COUNT combinations per SEED (1), each on one of the generated graphs. Losses of three epochs in double precision must agree to 1e-9
between one rank per data group and a random grid, in random schedules, orders and overlaps, with and without pruning; accuracies must be the
same. A combination may be refused only by a sentence of the table in the section "What is refused" of GRAPH_MODELS_MD.
"""

import json
import math
import os
import random
import re
import sys
import tempfile

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path += [FOLDER, os.path.join(FOLDER, "..")]
from predictions import write_npy  # noqa: E402
from program import Failure, attempt_all, expect_success, run  # noqa: E402
from refusals import are_documented  # noqa: E402

TOLERANCE = 1e-9
MOST_RANKS = 4
SCHEDULES = ("pmm3d", "rows")
GRIDS = [(x, y, z) for x in range(1, 5) for y in range(1, 5) for z in range(1, 5) if x * y * z <= MOST_RANKS]
MODELS = ("gcn", "sage", "graphconv", "tag", "gin", "gat", "gatv2", "transformer", "sgc", "appnp", "gcnii")
ACTIVATIONS = ("elu", "gelu", "silu", "leaky_relu", "tanh")
RESIDUALS = ([], ["--residual"], ["--residual", "project"])
JUMPS = ("cat", "max", "mean")
ATTENTION = ("gat", "gatv2", "transformer")


# Graphs

def generated(scratch, name, *options):
    store = os.path.join(scratch, f"{name}.h5")
    expect_success(1, ["partition", "--generate", *options, "-o", store])
    return store


def from_folder(scratch, name, edges, change, *options):
    """`change` adds or replaces arrays in the folder of a generated graph."""
    folder, store = os.path.join(scratch, name), os.path.join(scratch, f"{name}.h5")
    expect_success(1, ["generate", "--kind", "sbm", "--vertices", "240", "--edges", str(edges), "--features", "9", "--classes", "5",
                       "-o", folder])
    change(lambda array, *content: write_npy(os.path.join(folder, f"{array}.npy"), *content))
    expect_success(1, ["partition", "--input", folder, "-o", store, *options])
    return store


def graphs_in(scratch):
    draw = random.Random("graphs")
    weights = [draw.choice((0.5, 0.75, 1.5, 2.0)) for _ in range(1200)]
    several = [draw.randrange(2) for _ in range(240 * 5)]
    order = draw.sample(range(240), 240)

    def few_to_train(write):  # so that pruning leaves most vertices out
        for part, vertices in (("train", order[:12]), ("valid", order[12:80]), ("test", order[80:])):
            write(f"{part}_idx", (len(vertices),), "q", sorted(vertices))

    return {
        "sbm": generated(scratch, "sbm", "sbm", "--vertices", "300", "--edges", "1500", "--features", "10", "--classes", "4"),
        "rmat": generated(scratch, "rmat", "rmat", "--vertices", "256", "--edges", "1024", "--features", "12", "--classes", "3"),
        "directed": from_folder(scratch, "directed", 480, few_to_train, "--directed"),
        "weighted": from_folder(scratch, "weighted", 1200, lambda write: write("edge_weight", (1200,), "f", weights)),
        "several labels": from_folder(scratch, "several", 1200, lambda write: write("labels", (240, 5), "b", several)),
    }


# Options

class Draw(random.Random):
    def maybe(self, share):
        return self.random() < share

    def option(self, share, name, *values):
        """Words of an option with this probability; of a flag without values."""
        return ([name, str(self.choice(values))] if values else [name]) if self.maybe(share) else []


def model_words(draw):
    model = draw.choice(MODELS)
    words = ["--model", model]
    if model != "sgc" or draw.maybe(0.2):
        words += ["--layers", str(draw.choice((1, 2, 3))), "--hidden", str(draw.choice((8, 12, 20)))]
    if model in ("sage", "graphconv"):
        words += ["--aggregator", draw.choice(("mean", "sum", "max"))]
    if model in ("sgc", "appnp", "tag"):
        words += draw.option(0.5, "--propagation-steps", 1, 3)
    if model in ATTENTION:
        words += ["--heads", str(draw.choice((1, 2, 4))), "--output-heads", str(draw.choice((1, 2)))]
        words += draw.option(0.4, "--attention-dropout", 0.3)
    return words


def layer_words(draw):
    words = draw.option(0.4, "--norm", "rms", "layer", "batch") + draw.choice(RESIDUALS)
    words += draw.option(0.3, "--jump", *JUMPS) + draw.option(0.2, "--input-projection") + draw.option(0.2, "--head")
    words += draw.option(0.3, "--activation", *ACTIVATIONS)
    words += ["--dropout", str(draw.choice((0, 0.3, 0.6)))] + draw.option(0.25, "--edge-dropout", 0.2)
    return words + draw.option(0.2, "--trainable-features") + draw.option(0.15, "--no-bias")


def training_words(draw, graph):
    words = draw.option(0.2, "--label-smoothing", 0.1) + draw.option(0.2, "--class-weights", "balanced")
    loss = draw.option(0.3, "--loss", "binary", "focal")
    words += loss + (draw.option(0.5, "--focal-gamma", 0.5, 1.5) if "focal" in loss else [])
    words += draw.option(0.2, "--clip-norm", 0.5) + draw.option(0.2, "--optimizer", "sgd", "adamw")
    words += draw.option(0.1, "--feature-norm", "row")
    if graph != "several labels":
        words += draw.option(0.1, "--monitor", "loss", "both")
    return words + draw.option(0.15, "--normalize", "row", "none", "sym")


def batch_words(draw):
    words = ["--mode", "minibatch", "--batch", str(draw.choice((50, 77, 120))), "--sampler", draw.choice(("uniform", "degree"))]
    words += ["--batch-edges", draw.choice(("rescale", "renormalize"))]
    return words + draw.option(0.3, "--accumulate", 2) + draw.option(0.2, "--finish-full", 1)


def placed(schedule, grid):
    return ["--schedule", schedule, "--grid", "x".join(map(str, grid))]


def drawn(draw, graph):
    """Words of a combination, and those of its two places: one rank per data group, and a grid with other ways to compute the same."""
    words, groups = model_words(draw) + layer_words(draw) + training_words(draw, graph), 1
    is_full = draw.maybe(0.6)
    if not is_full:
        words, groups = words + batch_words(draw), draw.choice((1, 2))
    words += ["--seed", str(draw.randrange(99))]
    schedule, other = draw.choice(SCHEDULES), draw.choice(SCHEDULES)
    grid = draw.choice([grid for grid in GRIDS if groups * grid[0] * grid[1] * grid[2] <= MOST_RANKS])
    there = placed(other, (groups, *grid)) + draw.option(0.3, "--overlap", "on", "off") + draw.option(0.15, "--order", "aggregate", "transform")
    if other == "rows":
        there += draw.option(0.4, "--gather", "all", "needed")
        there += draw.option(0.4, "--prune", "on", "auto") if is_full else []
    return words, [placed(schedule, (groups, 1, 1, 1)), there]


# Trainings

def trained(words, metrics, place):
    """Of each epoch: the loss, and the accuracies. Or the sentence of a refusal."""
    ranks = math.prod(map(int, place[3].split("x")))
    done = run(ranks, [*words, *place, "--metrics", metrics, "--force", "--log-level", "error", "--timeout", "60"])
    if done.returncode == 2:
        return re.findall(r"^orthant: error: (.*)$", done.stderr, re.M)[0]
    if done.returncode != 0 and "the training has diverged" not in done.stderr:  # both places then diverge in the same epoch
        raise Failure(f"{' '.join(place)} ends with status {done.returncode}: {done.stderr}")
    with open(metrics, encoding="utf-8") as file:
        epochs = [event for event in map(json.loads, file) if event["event"] == "epoch"]
    return [event["loss"] for event in epochs], [event.get(score) or 0 for event in epochs for score in ("train_acc", "val_acc", "test_acc")]


def agrees_on_grids(_, title, number, words, places, scratch, refused):
    found = [trained(words, os.path.join(scratch, f"{number}-{i}.jsonl"), place) for i, place in enumerate(places)]
    refusals = [answer for answer in found if isinstance(answer, str)]
    if refusals:
        refused.append(refusals[0])
        print(f"     {title}: {refusals[0]}")
        return
    (losses, scores), (losses_there, scores_there) = found
    if len(losses) != len(losses_there) or not losses:
        raise Failure(f"{len(losses)} and {len(losses_there)} epochs")
    error = max(abs(a - b) / max(1, abs(a)) for a, b in zip(losses, losses_there))
    if not error <= TOLERANCE:
        raise Failure(f"losses {losses} and {losses_there} differ by {error:.1e}")
    error = max(abs(a - b) for a, b in zip(scores, scores_there))
    if error > TOLERANCE:
        raise Failure(f"accuracies differ by {error:.3f}")


def main():
    count, seeds = int(sys.argv[3]), [int(word) for word in sys.argv[4:]] or [1]
    refused = []
    with tempfile.TemporaryDirectory() as scratch:
        graphs = graphs_in(scratch)
        jobs = []
        for number, (seed, index) in enumerate((seed, index) for seed in seeds for index in range(count)):
            draw = Draw(f"{seed} {index}")
            graph = draw.choice(list(graphs))
            words, places = drawn(draw, graph)
            title = f"{seed}.{index} {graph}: {' '.join(words)}; {' '.join(places[0])} and {' '.join(places[1])}"
            words = ["train", "--graph", graphs[graph], "--epochs", "3", "--eval-every", "1", "--compute-dtype", "fp64", *words]
            jobs.append((1, (agrees_on_grids, title, number, words, places, scratch, refused)))
        status = attempt_all(jobs)
    is_documented = are_documented(refused, sys.argv[2])
    print(f"{len(jobs)} combinations, {len(refused)} refused")
    return status if is_documented else 1


if __name__ == "__main__":
    sys.exit(main())
