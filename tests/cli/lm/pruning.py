#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pruned training of language models (train-lm --prune-to): pruning.py PROGRAM PART"""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from language_models import Place, check, losses_of, require_equal, small  # noqa: E402
from program import expect_mistake, expect_success, run_part  # noqa: E402

MODEL = ["--dropout", "0.1", "--accumulate", "2", "--global-batch", "8", "--eval-every", "10", "--prune-to", "0.8"]


def runs(_):
    """Losses are those of one rank on every grid, in pipelines, and with experts; they differ from those of dense training."""
    place = Place()
    experts = ["--experts", "4", "--top-k", "2", "--no-tied-head"]
    dense = losses_of(place.train(1, *MODEL[:-2], "--grid", "1x1x1x1"))
    for model in (MODEL, [*MODEL, "--prune-at", "7"], [*MODEL, *experts]):
        found = place.train(1, *model, "--grid", "1x1x1x1")
        check("pruning   80 % of the entries of the blocks' matrices, " in found["output"], found["output"])
        whole = losses_of(found)
        check(whole != dense and (whole[7] == dense[7]) == ("--prune-at" in model), f"losses of {model}")
        for ranks, grid, *more in ((2, "2x1x1x1"), (2, "1x2x1x1"), (4, "2x1x1x2"), (4, "1x1x2x1", "--pipeline", "2"), (4, "2x1x1x1", "--pipeline", "2"),
                                   (4, "2x2x1x1", "--zero", "3"), (4, "4x1x1x1", "--expert-axis", "2")):
            if "--expert-axis" in more and "--experts" not in model:
                continue
            require_equal(losses_of(place.train(ranks, *model, "--grid", grid, *more)), whole, f"{model} on {grid} {more}")


def goes_on(_):
    """A training goes on on other grids before and after its weights are pruned, and only with the same options."""
    place = Place()
    model = [*MODEL, "--prune-at", "12", "--lr-schedule", "constant", "--min-lr", "0"]
    whole = losses_of(place.train(1, *model, "--grid", "1x1x1x1", steps=40))
    writing = [*model, "--checkpoint", place.file("c")]
    for i, grid in enumerate((["2x2x1x1"], ["1x1x1x4"], ["4x1x1x1"], ["1x2x1x1", "--pipeline", "2"], ["2x1x1x2"])):
        found = place.train(4, *writing, "--grid", *grid, *(["--resume", "auto"] if i > 0 else []), steps=8 * (i + 1))
    require_equal(losses_of(found), whole, "on five grids")
    train = ["train-lm", "--tokens", place.tokens, "--steps", "50", "--checkpoint", place.file("c"), "--resume", "auto"]
    for name, value in (("--prune-to", "0.7"), ("--prune-at", "13")):
        place_of_value = model.index(name) + 1
        other = [*model[:place_of_value], value, *model[place_of_value + 1:]]
        expect_mistake(1, [*train, *small(*other)], f"its {name} is {model[place_of_value]}, here it is {value}")


def plans(_):
    """plan-lm lists the memory and the bytes of the closed forms; weights that are pruned later have the memory of whole states."""
    layers, width, kept = 4, 256, 629146  # of 12 L H^2 elements: N - floor(0.8 N)
    number = 12 * layers * width * width
    check(kept == number - int(0.8 * number), f"{number} elements")

    def plan(grid, *arguments):
        done = expect_success(1, ["plan-lm", "--vocabulary", "4096", "--layers", str(layers), "--hidden", str(width), "--heads", "8", "--sequence", "16",
                                  "--global-batch", "64", "--grid", grid, "--json", *arguments])
        return json.loads(done.stdout)

    dense, pruned, later = (plan("1x1x1x1", *arguments) for arguments in ([], ["--prune-to", "0.8"], ["--prune-to", "0.8", "--prune-at", "9"]))
    check(pruned["array_bytes"] - dense["array_bytes"] == -12 * number + 4 * number // layers + 16 * kept, f"{pruned['array_bytes']}")
    check(later["array_bytes"] - dense["array_bytes"] == 4 * number // layers, f"{later['array_bytes']}")
    dense, pruned = (plan("4x1x1x1", *arguments) for arguments in ([], ["--prune-to", "0.8"]))
    check(dense["sent_bytes"] - pruned["sent_bytes"] == 2 * 3 * (number - kept), f"{pruned['sent_bytes']}")
    check(dense["checkpoint_bytes"] == pruned["checkpoint_bytes"], f"{pruned['checkpoint_bytes']}")


def mistakes(_):
    """One line for what does not go with pruned weights."""
    place = Place()
    train = ["train-lm", "--tokens", place.tokens, "--steps", "9"]
    for arguments, pattern in (
            (["--prune-to", "0"], r"--prune-to 0 is no share of weights: give a number above 0 and below 1"),
            (["--prune-to", "1"], r"--prune-to 1 is no share of weights"),
            (["--prune-to", "-0.5"], r"--prune-to -0\.5 is no share of weights"),
            (["--prune-to", "80"], r"--prune-to 80 is no share of weights"),
            (["--prune-to", "nan"], r"--prune-to"),
            (["--prune-to", "much"], r"--prune-to: needs a number, not 'much'"),
            (["--prune-at", "5"], r"--prune-at 5 is for --prune-to: give that, too"),
            (["--prune-to", "0.8", "--prune-at", "-1"], r"--prune-at: is -1, but must be at least 0"),
            (["--prune-to", "0.8", "--prune-at", "0.5"], r"--prune-at: needs a whole number"),
            (["--prune-to", "0.8", "--zero", "1"], r"--prune-to keeps moments of whole pieces, and --zero 1 shards them"),
            (["--prune-to", "0.8", "--zero", "2"], r"--zero 2 shards them: take --zero 3, or leave it out"),
            (["--prune-to", "0.8", "--moments", "int8"], r"--prune-to keeps moments in --compute-dtype: leave out --moments int8"),
            (["--prune-to", "0.8", "--moments", "bf16"], r"leave out --moments bf16"),
            (["--prune-to", "0.8", "--optimizer", "jorge"], r"--optimizer jorge needs whole ones: take another one"),
            (["--prune-to", "0.8", "--compute-dtype", "fp32", "--comm-dtype", "gradients=int8"], r"leave gradients= out of --comm-dtype gradients=int8"),
            (["--prune-to", "0.8", "--compute-dtype", "fp32", "--comm-dtype", "gradients=bf16"], r"--prune-to sums gradients in --compute-dtype"),
            (["--prune-to", "0.8", "--lora-rank", "2", "--init-from", "w.h5"], r"--lora-rank trains adapters only: leave one of them out")):
        expect_mistake(2, train + small(*arguments), pattern)
    expect_mistake(1, ["plan-lm", "--vocabulary", "64", "--ranks", "2", "--prune-to", "1.5"], r"--prune-to 1\.5 is no share of weights")


if __name__ == "__main__":
    raise SystemExit(run_part(runs, goes_on, plans, mistakes))
