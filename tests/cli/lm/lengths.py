#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Language models whose presets bend to other options, and trainings that are made longer: lengths.py PROGRAM PART"""

import json
import math
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from language_models import Place, check, losses_of, require_equal, small  # noqa: E402
from program import expect_mistake, expect_success, run_part  # noqa: E402


def bent_presets(_):
    """What a preset gives bends to what was given, and one line says so."""
    place = Place("char", b"abcdefgh" * 8)  # 57 tokens to train on
    metrics = place.file("p.jsonl")

    def train(ranks, *arguments, **variables):
        done = expect_success(ranks, ["train-lm", "--tokens", place.tokens, "--eval-every", "0", "--metrics", metrics, "--force", *arguments], **variables)
        with open(metrics, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        return re.findall(r"--preset .*", done.stderr), lines[0]["configuration"], [line["lr"] for line in lines if line["event"] == "step"]

    said, configuration, rates = train(1, "--preset", "nanogpt-cpu", "--steps", "20", "--lr", "5e-5", "--hidden", "30")
    check(said == ["--preset nanogpt-cpu gives way to the other options: --heads 3 in place of 4, --sequence 56 in place of 64, "
                   "--min-lr 5e-06 in place of 0.0001, --warmup-steps 1 in place of 100"], f"says {said}")
    check([configuration[name] for name in ("heads", "sequence", "warmup-steps")] == [3, 56, 1], f"{configuration}")
    check(len(rates) == 20 and rates[0] == 5e-5 and abs(rates[-1] - 5e-6) < 1e-18, f"rates {rates}")
    # The environment is the user's, too.
    said, configuration, _ = train(2, "--preset", "mixtral-cpu", "--sequence", "8", "--steps", "1", "--hidden", "16", "--grid", "2x1x1x1",
                                   "--expert-axis", "2", "--accumulate", "5", ORTHANT_EXPERTS="2", ORTHANT_TOP_K="1")
    check(said == ["--preset mixtral-cpu gives way to the other options: --global-batch 15 in place of 12, --warmup-steps 0 in place of 100"], f"says {said}")
    check(train(1, "--preset", "nanogpt-cpu", "--steps", "0", "--sequence", "8")[0] ==
          ["--preset nanogpt-cpu gives way to the other options: --warmup-steps 0 in place of 100"], "a training of no steps")
    # The network stays, wherever it is trained.
    cut = ["train-lm", "--tokens", place.tokens, "--eval-every", "0", "--sequence", "8", "--steps", "1"]
    expect_mistake(3, [*cut, "--preset", "nanogpt-cpu", "--grid", "1x3x1x1"], r"4 heads with 4 key-value heads cannot be cut over x = 3")
    expect_mistake(3, [*cut, "--preset", "mixtral-cpu", "--grid", "3x1x1x1", "--expert-axis", "3"], r"--experts 8 cannot be dealt to the 3 ranks of --expert-axis evenly")


def longer(_):
    """A training of 20 steps that goes on to 40 is one of 40 steps: to the bit on its grid, and to rounding on another one."""
    place = Place()
    model, grid = ["--dropout", "0.1", "--eval-every", "8"], ["--grid", "1x2x1x1"]
    constant = ["--lr-schedule", "constant", "--min-lr", "0"]
    whole = losses_of(place.train(2, *model, *constant, *grid, steps=40))
    for ranks, more in ((2, grid), (2, [*grid, "--resume-override", "length"]), (4, ["--grid", "2x1x1x2"])):
        folder = place.file(f"c{ranks}{len(more)}")
        writing = [*model, *constant, "--checkpoint", folder]
        place.train(2, *writing, *grid, steps=20)
        check(os.listdir(folder).count("checkpoint-000020.h5") == 1, f"{os.listdir(folder)}")
        found = losses_of(place.train(ranks, *writing, *more, "--resume", "auto", steps=40))
        require_equal(found, whole, f"longer on {ranks}")
        check(ranks == 4 or found == whole, f"not to the bit: {found}, {whole}")
        check(sorted(os.listdir(folder)) == ["checkpoint-000020.h5", "checkpoint-000040.h5", "latest"], f"{os.listdir(folder)}")
    folder = place.file("cosine")
    cosine = ["train-lm", "--tokens", place.tokens, *small(*model, "--checkpoint", folder)]
    expect_success(2, [*cosine, "--steps", "20"])
    expect_mistake(2, [*cosine, "--steps", "40", "--resume", "auto"], r"its --steps is 20, here it is 40 \(--resume-override length goes on")
    expect_mistake(2, [*cosine, "--steps", "19", "--resume", "auto", "--resume-override", "length"],
                   r"checkpoint-000020\.h5' has come to step 20, and --steps 19 ends before it: give --steps 20 or more")
    metrics = place.file("cosine.jsonl")
    done = expect_success(2, [*cosine, "--steps", "40", "--resume", "auto", "--resume-override", "length", "--metrics", metrics])
    rate = 1e-4 + 0.9e-3 * (1 + math.cos(math.pi * 17 / 36)) / 2  # steps 4 to 40 decay
    check(f"--steps is 40 here and was 20: the learning rate now decays over the new length, and it was 0.0001 in step 20 and is {rate:.6g} in step 21"
          in done.stderr, done.stderr)
    with open(metrics, encoding="utf-8") as file:
        rates = [line["lr"] for line in map(json.loads, file) if line["event"] == "step"]
    check(len(rates) == 20 and abs(rates[0] - rate) < 1e-15 and abs(rates[-1] - 1e-4) < 1e-15, f"rates {rates}")
    warm_up_of_preset(place)


def warm_up_of_preset(place):
    """It keeps its share of --steps, 1 of 20 and 2 of 40, and so may differ by --resume-override length."""
    metrics = place.file("preset.jsonl")

    def train(*arguments, steps):
        done = expect_success(1, ["train-lm", "--tokens", place.tokens, *small_preset, *arguments, "--steps", str(steps), "--metrics", metrics, "--force"])
        with open(metrics, encoding="utf-8") as file:
            return done.stderr, [(line["loss"], line["lr"]) for line in map(json.loads, file) if line["event"] == "step"]

    small_preset = ["--preset", "nanogpt-cpu", "--layers", "1", "--hidden", "16", "--sequence", "16", "--eval-every", "0"]
    for name, schedule in (("cosine", []), ("constant", ["--lr-schedule", "constant"])):
        goes_on = [*schedule, "--checkpoint", place.file("preset-" + name), "--resume", "auto"]
        _, first = train(*goes_on, steps=20)
        differs = r"its --warmup-steps is 1, here it is 2; its --steps is 20, here it is 40 \(--resume-override length goes on"
        expect_mistake(1, ["train-lm", "--tokens", place.tokens, *small_preset, *goes_on, "--steps", "40"], differs)
        said, found = train(*goes_on, "--resume-override", "length", steps=40)
        check(len(found) == 40 and found[:20] == first, f"{name}: {found}")
        if name == "cosine":
            expected = [1e-4 + 0.9e-3 * (1 + math.cos(math.pi * (step - 2) / 38)) / 2 for step in range(21, 41)]
            check(max(abs(rate - wanted) for (_, rate), wanted in zip(found[20:], expected)) < 1e-15, f"{found}")
        else:
            check("the learning rate now warms up by the new length, and it was 0.001 in step 20 and is 0.001 in step 21" in said, said)
            check(found == train(*schedule, "--warmup-steps", "1", steps=40)[1], "not to the bit")


if __name__ == "__main__":
    raise SystemExit(run_part(bent_presets, longer))
