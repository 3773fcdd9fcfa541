#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""States that are sharded over data groups (train-lm --zero) or dealt to ranks (--optimizer jorge): sharded_states.py PROGRAM PART"""

import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from language_models import Place, check, losses_of, require_equal, small  # noqa: E402
from program import expect_mistake, expect_success, run_part  # noqa: E402

MODEL = ["--dropout", "0.1", "--accumulate", "2", "--global-batch", "8", "--eval-every", "10"]


def stages(_):
    """Losses are those of one rank at every stage, and the output says over which ranks states are sharded."""
    place = Place()
    experts = ["--experts", "4", "--top-k", "2"]
    for model in (MODEL, [*MODEL, *experts]):
        whole = losses_of(place.train(1, *model, "--grid", "1x1x1x1"))
        for ranks, grid, axis in ((4, "4x1x1x1", "1"), (4, "2x2x1x1", "1"), (4, "2x1x1x2", "1"), (4, "4x1x1x1", "2")):
            if axis != "1" and model is MODEL:
                continue
            for stage in "123":
                found = place.train(ranks, *model, "--grid", grid, *(["--expert-axis", axis] if axis != "1" else []), "--zero", stage)
                require_equal(losses_of(found), whole, f"{model} on {grid}, stage {stage}")
                said = re.search(r"zero      stage (\d): .* over (?:the )?(\d) ranks", found["output"])
                data, *_, depth = map(int, grid.split("x"))
                wanted = depth * data // int(axis) if stage == "3" else data
                check(said is not None and said.groups() == (stage, str(wanted)), f"{grid}, stage {stage}: {found['output']}")
                if stage == "3":
                    x, y = grid.split("x")[1:3]
                    check(found["run"][0]["grid"] == f"{axis}x{x}x{y}x{wanted}", f"{grid} became {found['run'][0]['grid']}")


def goes_on(_):
    """A training goes on under another stage and on another grid."""
    place = Place()
    whole = losses_of(place.train(1, *MODEL, "--grid", "1x1x1x1", steps=40))
    changes = [("4x1x1x1", "1"), ("2x1x1x2", "0"), ("2x2x1x1", "2"), ("4x1x1x1", "3"), ("1x2x1x2", "0")]
    writing = [*MODEL, "--lr-schedule", "constant", "--min-lr", "0", "--checkpoint", place.file("c")]
    constant = losses_of(place.train(1, *MODEL, "--lr-schedule", "constant", "--min-lr", "0", "--grid", "1x1x1x1", steps=40))
    check(constant != whole, "schedules")
    for i, (grid, stage) in enumerate(changes):
        found = place.train(4, *writing, "--grid", grid, "--zero", stage, *(["--resume", "auto"] if i > 0 else []), steps=8 * (i + 1))
    require_equal(losses_of(found), constant, "five stages and grids")


def plans(_):
    """Less memory and the same bytes at stages 1 and 2; and the grids of stage 3."""
    shape = ["--layers", "4", "--hidden", "256", "--heads", "8", "--sequence", "16", "--global-batch", "64"]

    def plan(*arguments, ranks="8"):
        done = expect_success(1, ["plan-lm", "--vocabulary", "4096", "--ranks", ranks, "--json", *shape, *arguments])
        return [json.loads(line) for line in done.stdout.splitlines()]

    found = [plan("--grid", "8x1x1x1", "--zero", str(stage))[0] for stage in range(4)]
    number = 4 * (12 * 4 * 256 * 256 + 4096 * 256)  # bytes of the weights
    norms = 2 * (4 * 12 + 4) * 8 * 7 // 8  # of all parameters, which are summed over data, too
    sent = [line["sent_bytes"] for line in found]
    check(sent[0] + norms == sent[1] == sent[2] < sent[3], f"bytes {sent}")
    check(found[0]["array_bytes"] - found[1]["array_bytes"] == 2 * number * 7 // 8 - number // 8, "moments / 8, and the sum of an eighth")
    check(found[3]["grid"] == "1x1x1x8" and found[3]["array_bytes"] < found[2]["array_bytes"] <= found[1]["array_bytes"], f"{found[3]}")
    check(plan("--grid", "8x1x1x1", "--zero", "3", "--zero-group", "node", "--machine", "perlmutter")[0]["grid"] == "2x1x1x4", "four ranks per node")
    check(all(line["grid"].startswith("1x") for line in plan("--zero", "3", "--top", "20")), "grids of stage 3")
    within = plan("--zero", "3", "--zero-group", "node", "--machine", "perlmutter", "--top", "30", ranks="16")
    check(all(d == 1 or (z > 1 and 4 % (x * y * z) == 0) for d, x, y, z in ([int(n) for n in line["grid"].split("x")] for line in within)), f"{within}")


def jorge(_):
    """Losses are those of one rank; a training goes on on other grids; plan-lm lists the states of tiles."""
    place = Place()
    options = [*MODEL, "--optimizer", "jorge", "--lr", "0.1", "--jorge-tile", "24", "--jorge-interval", "3", "--lr-schedule", "constant", "--min-lr", "0"]
    whole = losses_of(place.train(1, *options, "--grid", "1x1x1x1", steps=24))
    writing = [*options, "--checkpoint", place.file("c")]
    changes = (["1x2x1x2"], ["4x1x1x1", "--zero", "3"], ["1x1x2x1", "--pipeline", "2"], ["2x1x2x1"])
    for i, grid in enumerate(changes):
        found = place.train(4, *writing, "--grid", *grid, *(["--resume", "auto"] if i > 0 else []), steps=6 * (i + 1))
    require_equal(losses_of(found), whole, "three grids and a pipeline")

    tile, width, layers, vocabulary, sequence = 256, 256, 4, 4096, 16

    def array_bytes(*arguments):
        done = expect_success(1, ["plan-lm", "--vocabulary", str(vocabulary), "--ranks", "1", "--json", "--layers", str(layers), "--hidden", str(width), "--heads", "8",
                                  "--sequence", str(sequence), "--global-batch", "64", "--grid", "1x1x1x1", *arguments])
        return json.loads(done.stdout)["array_bytes"]

    tiles = 12 * layers + vocabulary // tile
    numbers = tiles * tile * tile + sequence * width  # of matrices
    squares = 2 * tiles * tile * tile + sequence * sequence + width * width
    # Of them SGD has a momentum. A tile has another one, L and R, and the gradient; scratch memory has three squares.
    more = array_bytes("--optimizer", "jorge", "--jorge-tile", str(tile)) - array_bytes("--optimizer", "sgd")
    check(more == 4 * (2 * numbers + squares + 3 * tile * tile) + 32, f"{more} bytes more than SGD")


def mistakes(_):
    place = Place()
    train = ["train-lm", "--tokens", place.tokens]
    for ranks, arguments, pattern in ((1, ["--zero", "4"], r"--zero"), (1, ["--zero", "1", "--zero-group", "node"], r"--zero-group node is of --zero 3"),
                                      (1, ["--optimizer", "jorge", "--zero", "2"], r"--optimizer jorge .*take --zero 3 in place of --zero 2"),
                                      (1, ["--optimizer", "jorge", "--experts", "4"], r"--optimizer jorge does not precondition experts"),
                                      (1, ["--optimizer", "jorge", "--betas", "0.9,0.95"], r"--betas are of Adam and Lion: leave them out with --optimizer jorge"),
                                      (1, ["--optimizer", "jorge", "--jorge-tile", "0"], r"--jorge-tile"),
                                      (1, ["--jorge-interval", "3"], r"--jorge-interval is for --optimizer jorge"),
                                      (3, ["--zero", "3", "--grid", "3x1x1x1", "--global-batch", "2"], r"2 sequences per pass are fewer than the 3 ranks")):
        expect_mistake(ranks, train + small(*arguments), pattern)
    expect_mistake(1, ["plan-lm", "--vocabulary", "64", "--ranks", "6", "--grid", "2x3x1x1", "--heads", "3", "--hidden", "96", "--zero", "3", "--zero-group", "node",
                       "--machine", "perlmutter"], r"--zero-group node: the 3 x 1 x 1 ranks of a data group of --grid 2x3x1x1")


if __name__ == "__main__":
    raise SystemExit(run_part(stages, goes_on, plans, jorge, mistakes))
