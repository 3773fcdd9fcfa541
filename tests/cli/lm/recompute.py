#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Results that backward passes compute again: recompute.py PROGRAM PART"""

import json
import os
import re
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", *parts) for parts in ([], ["machines"])]
from emulation import MACHINE  # noqa: E402
from language_models import Place, check, losses_of, small  # noqa: E402
from program import expect_mistake, expect_success, run_part  # noqa: E402

PLAN = ["plan-lm", "--vocabulary", "300", "--layers", "12", "--hidden", "256", "--heads", "8", "--sequence", "512", "--global-batch", "16"]


def same_bits(_):
    place = Place()
    for ranks, model in ((1, []), (2, ["--arch", "llama", "--grid", "1x2x1x1"]), (2, ["--context-axis", "2", "--context-exchange", "key-values"]),
                         (2, ["--context-axis", "2", "--context-exchange", "heads"])):
        kept = place.train(ranks, *model, "--dropout", "0.1", steps=6)
        again = place.train(ranks, *model, "--dropout", "0.1", "--recompute", "norms,activations,attention", "--force", steps=6)
        check(losses_of(again) == losses_of(kept), f"{model}: losses {losses_of(again)}, not {losses_of(kept)}")


def goes_on(_):
    place = Place()
    model = ["--warmup-steps", "0", "--lr-schedule", "constant", "--min-lr", "0", "--checkpoint", place.file("c"), "--checkpoint-every", "4"]
    whole = place.train(1, *model[:-4], steps=8)
    place.train(1, *model, "--recompute", "norms", steps=4)
    found = place.train(1, *model, "--recompute", "attention", "--resume", "auto", steps=8)
    check(losses_of(found) == losses_of(whole), f"{losses_of(found)}, not {losses_of(whole)}")


def plans(*arguments):
    return json.loads(expect_success(1, [*PLAN, "--grid", "1x1x1x1", "--json", *arguments]).stdout)


def fits(_):
    """Widths of the stream per token that a block keeps: norms 2 of 16, activations 4, attention 1."""
    place = Place()
    choices = {words: plans("--recompute", words) if words else plans()
               for words in ("", "norms", "activations", "norms,activations", "attention", "norms,attention", "activations,attention",
                             "norms,activations,attention")}
    stream = 4 * 16 * 512 * 256
    for words, saved in (("norms", 12 * 2 - 1), ("activations", 11 * 4), ("attention", 11)):
        check(choices[""]["array_bytes"] - choices[words]["array_bytes"] == saved * stream, f"{words}: {choices[words]['array_bytes']}")
        check(choices[words]["recompute"] == words and choices[words]["seconds"] > choices[""]["seconds"], f"{words}: {choices[words]}")
    machine = place.file("machine.toml")
    text = MACHINE.format(ranks_per_node=1, factor=1).replace("bytes_per_second = 1e300", "bytes_per_second = 1e10\nbytes = BYTES", 1)
    text = text.replace("fp32 = 1e300", "fp32 = 1e11")
    full = plans("--activation-checkpointing", "full")
    for limit in sorted(choice["array_bytes"] for choice in [*choices.values(), full]):
        with open(machine, "w", encoding="utf-8") as file:
            file.write(text.replace("BYTES", str(1.03 * limit)))
        done = expect_success(1, [*PLAN, "--grid", "1x1x1x1", "--machine", machine, "--fit"])
        rows = re.findall(r"^(nothing|--\S+ \S+) +(1x1x1x1|none) +([\d.]+) +([\d.]+|too much)$", done.stdout, re.MULTILINE)
        check(len(rows) == 9, done.stdout)
        fitting = {row[0]: float(row[3]) for row in rows if row[3] != "too much"}
        best = min(fitting, key=fitting.get)
        command = done.stdout.splitlines()[-1]
        check(("nothing" if "--recompute" not in command and "--activation" not in command else best) == best and
              (best == "nothing" or best in command), f"{best} is fastest, but: {done.stdout}")
    done = expect_success(1, [*PLAN, "--grid", "1x1x1x1", "--accumulate", "4", "--pipeline", "2", "--pipeline-schedule", "zero-bubble", "--fit"])
    check("--activation-checkpointing" not in done.stdout, done.stdout)
    with open(machine, "w", encoding="utf-8") as file:
        file.write(text.replace("BYTES", "1e7"))
    expect_mistake(1, [*PLAN, "--grid", "1x1x1x1", "--machine", machine, "--fit"], r"take more ranks, or a larger --accumulate")
    expect_mistake(1, [*PLAN, "--grid", "1x1x1x1", "--machine", machine], r"or let --fit choose what is computed again")


def mistakes(_):
    place = Place()
    expect_mistake(1, ["train-lm", "--tokens", place.tokens, *small("--recompute", "softmax")], r"'softmax' is none of norms, activations, attention")
    expect_mistake(1, ["train-lm", "--tokens", place.tokens, *small("--recompute", "activations", "--experts", "4")], r"this model has neither")
    expect_mistake(1, [*PLAN, "--grid", "1x1048576x1x1", "--pipeline", "4096"], r"a job of 4294967296 ranks; give a grid and a pipeline of at most 65536")
    expect_mistake(1, [*PLAN, "--grid", "1x1x1x1", "--fit", "--recompute", "norms"], r"plan-lm --fit chooses what is computed again")


if __name__ == "__main__":
    raise SystemExit(run_part(same_bits, goes_on, fits, mistakes))
