#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trainings of some of the weights of a language model: fine_tuning.py PROGRAM PART"""

import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from language_models import GRIDS, Place, check, losses_of, require_equal, small  # noqa: E402
from program import expect_mistake, expect_success, run_part  # noqa: E402


def has_same_bits(one, other, name):
    """Whether two weights files have the same numbers in the array `name`."""
    done = subprocess.run(["h5diff", one, other, "/parameters/" + name], capture_output=True, text=True, check=False)
    check(done.returncode in (0, 1), done.stderr)
    return done.returncode == 0


def frozen(_):
    """Frozen weights keep their bits, and the losses are those of one rank on every grid and after a resume onto another one."""
    place = Place()
    weights, tuned = place.file("w.h5"), place.file("tuned.h5")
    place.train(1, "--save-weights", weights, steps=6)
    tuning = ["--init-from", weights, "--save-weights", tuned, "--freeze", "wte.*,h.0.*", "--freeze", "*.ln_2.bias", "--no-decay",
              "*.c_fc.weight", "--weight-decay", "0.5", "--accumulate", "2", "--global-batch", "8", "--lr", "0.005", "--force"]
    whole = place.train(1, *tuning)
    check(whole["step"][-1]["loss"] < whole["step"][0]["loss"] - 0.02, f"it does not learn: {losses_of(whole)}")
    for ranks, grids in GRIDS.items():
        for grid in grids:
            require_equal(losses_of(place.train(ranks, *tuning, "--grid", grid)), losses_of(whole), f"losses on {grid}")
            for name, is_frozen in (("wte.weight", True), ("h.0.attn.c_attn.weight", True), ("h.0.ln_1.bias", True), ("h.1.ln_2.bias", True),
                                    ("wpe.weight", False), ("h.1.mlp.c_fc.weight", False), ("h.1.attn.c_attn.bias", False), ("ln_f.weight", False)):
                check(has_same_bits(weights, tuned, name) == is_frozen, f"{name} after a training on {grid}")
    decayed = losses_of(place.train(1, *[word for word in tuning if word not in ("--no-decay", "*.c_fc.weight")]))
    check(abs(decayed[20] - losses_of(whole)[20]) > 1e-7, "--no-decay has no effect")
    folder = place.file("checkpoints")
    writing = [*tuning, "--checkpoint", folder, "--checkpoint-every", "7"]
    place.train(2, *writing, "--grid", "1x2x1x1")
    shown = expect_success(1, ["info", os.path.join(folder, "latest")]).stdout
    check("wte.weight" in shown, shown)
    for name in os.listdir(folder):  # as if it had stopped behind step 14
        if name in ("checkpoint-000020.h5", "latest"):
            os.remove(os.path.join(folder, name))
    found = place.train(4, *writing, "--grid", "2x1x1x2", "--resume", "auto")
    require_equal(losses_of(found), losses_of(whole), "losses after a resume")
    check(has_same_bits(weights, tuned, "h.0.mlp.c_proj.weight"), "a frozen weight after a resume")
    check(re.search(r"trains +\d+ of \d+ parameters", whole["output"]), whole["output"])
    train = ["train-lm", "--tokens", place.tokens, "--steps", "20", *small()]
    expect_mistake(2, [*train, "--freeze", "h.2.*"], r"--freeze h\.2\.\* matches none of the model's weights: wte\.weight, wpe\.weight, h\.0\.ln_1\.weight")
    expect_mistake(2, [*train, "--no-decay", "wte"], r"--no-decay wte matches none of the model's weights")
    expect_mistake(2, [*train, "--freeze", "w*,h.*", "--freeze", "ln_f.*"], r"--freeze w\*,h\.\*,ln_f\.\* leaves nothing to train")
    expect_mistake(2, [*train, "--no-decay", "wte.*", "--weight-decay", "0"], r"--no-decay wte\.\* with --weight-decay 0, which decays no weight: leave it out")


def schedules(_):
    """Learning rates in the metrics, by their formulas."""
    place = Place()
    rate, warmup, steps = 2e-3, 4, 20
    for words, expected in ((["wsd", "--lr-decay-share", "0.3", "--min-lr", "1e-4"],
                             lambda t: 1e-4 + (rate - 1e-4) * min(1, (steps - t) / (0.3 * steps))),
                            (["wsd", "--min-lr", "0"], lambda t: rate * min(1, (steps - t) / (0.2 * steps))),
                            (["inverse-sqrt", "--min-lr", "0"], lambda t: rate * (warmup / t) ** 0.5)):
        found = place.train(2, "--lr", str(rate), "--lr-schedule", *words, "--eval-every", "0")
        for line in found["step"]:
            t = line["step"]
            wanted = rate * t / warmup if t < warmup else expected(t)
            check(abs(line["lr"] - wanted) < 1e-15, f"{words}: {line['lr']} in step {t}, not {wanted}")
    folder = place.file("checkpoints")
    train = ["train-lm", "--tokens", place.tokens, "--checkpoint", folder, *small("--lr-schedule", "wsd")]
    expect_success(1, [*train, "--steps", "10"])
    expect_mistake(1, [*train, "--steps", "20", "--resume", "auto"], r"--resume-override length")


sys.exit(run_part(frozen, schedules))
