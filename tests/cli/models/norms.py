#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LayerNorm and BatchNorm through the program: norms.py PROGRAM

They learn in every mode; running statistics go with the weights, through files, checkpoints and PyTorch's names, so that an evaluation
elsewhere has the scores of the training.
"""

import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from plain_gcn import read_safetensors  # noqa: E402
from program import attempt_all, expect_mistake, expect_success, require  # noqa: E402
from trainings import lines_of, losses  # noqa: E402

GENERATE = ["generate", "--kind", "sbm", "--vertices", "150", "--edges", "700", "--features", "6", "--classes", "3", "--format", "ogb"]
MODEL = ["--hidden", "7", "--compute-dtype", "fp64", "--epochs", "4", "--eval-every", "2", "--dropout", "0.3"]
MODES = {"pmm3d": ["--schedule", "pmm3d"], "rows": ["--schedule", "rows"],
         "batches": ["--mode", "minibatch", "--batch", "40", "--accumulate", "2"], "ending in full": ["--mode", "minibatch", "--batch", "40", "--finish-full", "1"]}
ARRAYS = {"layer": {"norm", "norm_shift"}, "batch": {"norm", "norm_shift", "norm_mean", "norm_variance"}}
TORCH = {"layer": {"norms.0.weight", "norms.0.bias"},
         "batch": {f"norms.0.module.{leaf}" for leaf in ("weight", "bias", "running_mean", "running_var")}}


def store_in(scratch):
    graph, store = os.path.join(scratch, "g"), os.path.join(scratch, "g.h5")
    expect_success(1, [*GENERATE, "-o", graph])
    expect_success(1, ["partition", "--input", graph, "-o", store])
    return store


def weights_hold_statistics(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        store = store_in(scratch)
        weights, tensors, back = (os.path.join(scratch, name) for name in ("w.h5", "w.safetensors", "back.h5"))
        for norm in ARRAYS:
            for mode in MODES.values():
                trained = lines_of(ranks, scratch, ["train", "--graph", store, *MODEL, *mode, "--norm", norm, "--save-weights", weights])[-2]
                for schedule in ("pmm3d", "rows"):
                    found = lines_of(ranks, scratch, ["evaluate", "--graph", store, "--weights", weights, "--compute-dtype", "fp64", "--schedule", schedule])[-1]
                    done = expect_success(1, ["info", weights])
                    for score in ("val_loss", "test_loss", "val_acc"):
                        require(abs(found[score] - trained[score]) < 1e-10, f"{norm}, {mode}: {score} {found[score]}, {trained[score]}", done)
                require(f"norm {norm}" in done.stdout, "does not name the norm", done)
            expect_success(ranks, ["export-weights", weights, "-o", tensors, "--force"])
            shapes, about = read_safetensors(tensors)
            require({name for name in shapes if name.startswith("norms.0")} == TORCH[norm], f"has {sorted(shapes)}", done)
            require(about["norm"] == norm, f"says {about}", done)
            expect_success(ranks, ["import-weights", tensors, "-o", back, "--force"])
            same = subprocess.run(["h5diff", weights, back], capture_output=True, text=True, check=False)
            require(same.returncode == 0, f"the way there and back changes: {same.stdout}", done)
            expect_mistake(ranks, ["train", "--graph", store, *MODEL, "--norm", "rms", "--init-from", weights], rf"another architecture: its norm is {norm}")


def trainings_go_on(ranks):
    """From a checkpoint, with the losses and the scores of one that was not stopped; they learn."""
    with tempfile.TemporaryDirectory() as scratch:
        store = store_in(scratch)
        for norm in ARRAYS:
            for title, mode in MODES.items():
                # Without biases, which BatchNorm takes out: their gradients are rounding errors, of which Adam makes steps.
                words = ["train", "--graph", store, *MODEL, *mode, "--norm", norm, *(["--no-bias"] if norm == "batch" else [])]
                whole = lines_of(ranks, scratch, words)
                folder = ["--checkpoint", os.path.join(scratch, f"{norm}-{title}")]
                if title == "ending in full":
                    continue
                half = ["2" if word == "4" and words[i - 1] == "--epochs" else word for i, word in enumerate(words)]
                lines_of(1, scratch, [*half, *folder])
                rest = lines_of(ranks, scratch, [*words, *folder, "--resume", "auto"])
                done = expect_success(1, ["info", store])
                require(losses(whole)[-1] < losses(whole)[0], f"{norm}, {title} does not learn: {losses(whole)}", done)
                require(max(abs(a - b) for a, b in zip(losses(rest), losses(whole))) < 1e-10, f"goes on as {losses(rest)}, not {losses(whole)}", done)
                for score in ("val_loss", "test_loss"):
                    found, expected = rest[-2][score], whole[-2][score]
                    require(abs(found - expected) < 1e-10, f"{norm}, {title}: {score} {found}, {expected}", done)


def mistakes(ranks):
    train = ["train", "--dataset", "karate", "--norm"]
    expect_mistake(ranks, [*train, "instance"], r"'instance' is none of layer, batch, rms, none")


def main():
    both = [weights_hold_statistics, trainings_go_on, mistakes]
    raise SystemExit(attempt_all([(ranks, (function,)) for ranks in (1, 3) for function in both]))


if __name__ == "__main__":
    main()
