#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pipelines of language models through the program: pipelines.py PROGRAM PART"""

import json
import os
import re
import subprocess
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", *parts) for parts in ([], ["machines"])]
from emulation import MACHINE  # noqa: E402
from language_models import Place, check, losses_of, require_equal, small  # noqa: E402
from program import expect_mistake, expect_success, run, run_part  # noqa: E402

MODEL = ["--layers", "4", "--accumulate", "4", "--global-batch", "16", "--dropout", "0.1", "--eval-every", "4"]
GPT, LLAMA = ["--no-tied-head"], ["--arch", "llama", "--kv-heads", "2"]


def same_weights(one, other):
    return subprocess.run(["h5diff", one, other, "/parameters"], capture_output=True, check=False).returncode == 0


def runs(_):
    """Losses, norms, evaluations and weights are those of the grid of a stage to the bit; with a tied head, to rounding."""
    place = Place()
    one, other = place.file("one.h5"), place.file("other.h5")
    for model, is_tied in ((GPT, False), (LLAMA, False), ([], True)):
        model = [*MODEL, *model, "--force"]
        for ranks, grid, stages in ((1, "1x1x1x1", 2), (1, "1x1x1x1", 4), (2, "1x2x1x1", 2), (2, "2x1x1x1", 2), (2, "1x1x1x2", 2)):
            whole = place.train(ranks, *model, "--grid", grid, "--save-weights", one, steps=8)
            found = place.train(stages * ranks, *model, "--grid", grid, "--pipeline", str(stages), "--save-weights", other, steps=8)
            what = f"{model} on {stages} stages of {grid}"
            check(found["run"][0]["grid"] == grid and found["run"][0]["pipeline"] == stages, f"{what}: the record has another grid")
            require_equal(losses_of(found), losses_of(whole), what)
            for event, key in (("step", "grad_norm"), ("step", "lr"), ("eval", "val_loss"), ("eval", "val_acc")):
                pairs = [(a[key], b[key]) for a, b in zip(found[event], whole[event])]
                check(len(pairs) == len(whole[event]) and all(abs(a - b) <= 1e-10 for a, b in pairs), f"{what}: {key} {pairs}")
            if not is_tied:
                check(losses_of(found) == losses_of(whole) and same_weights(one, other), f"{what}: other bits")
            split = place.train(stages * ranks, *model, "--grid", grid, "--pipeline", str(stages), "--pipeline-schedule", "zero-bubble",
                                "--save-weights", one, steps=8)
            check(losses_of(split) == losses_of(found) and same_weights(one, other), f"{what}: other bits with split backward passes")


def diverges(_):
    """A loss that is not finite ends all stages, with the message of a run without a pipeline."""
    place = Place()
    messages = []
    for ranks, arguments in ((1, []), (4, ["--pipeline", "4"]), (4, ["--pipeline", "2", "--grid", "1x1x1x2"])):
        done = run(ranks, ["train-lm", "--tokens", place.tokens, "--steps", "9", "--metrics", place.file("m.jsonl"), "--force",
                           *small(*MODEL, *GPT, "--warmup-steps", "0", "--lr", "1e30", "--min-lr", "0", *arguments)])
        messages.append([re.sub(r"^.*?(step \d)", r"\1", line) for line in done.stderr.splitlines() if "not finite" in line])
        check(done.returncode != 0 and len(messages[-1]) == 1, f"{arguments}: {done.stderr}")
    check(messages.count(messages[0]) == 3, f"messages {messages}")


def goes_on(_):
    """A checkpoint goes on under other pipelines, and without one."""
    place = Place()
    model = [*MODEL, *GPT, "--warmup-steps", "0", "--lr-schedule", "constant", "--min-lr", "0", "--checkpoint-every", "4", "--checkpoint", place.file("c")]
    whole = place.train(1, *model[:-4], steps=12)
    for ranks, arguments, steps in ((4, ["--pipeline", "4"], 4), (2, ["--pipeline", "2"], 8), (1, [], 12)):
        found = place.train(ranks, *model, *arguments, "--resume", "auto", steps=steps)
    check(losses_of(found) == losses_of(whole), f"losses {losses_of(found)}, not {losses_of(whole)}")
    place = Place()
    model[-1] = place.file("c")
    for ranks, arguments, steps in ((1, [], 4), (4, ["--pipeline", "2", "--grid", "1x2x1x1"], 8), (4, ["--pipeline", "2", "--grid", "auto"], 12)):
        found = place.train(ranks, *model, *arguments, "--resume", "auto", steps=steps)
    require_equal(losses_of(found), losses_of(whole), "on grids and pipelines")


def shards(_):
    """States sharded over data in each stage: the losses of one rank."""
    place = Place()
    model = [*MODEL, *GPT]
    whole = place.train(1, *model, steps=6)
    for zero in ("1", "2", "3"):
        for schedule in ("1f1b", "zero-bubble"):
            found = place.train(4, *model, "--pipeline", "2", "--grid", "2x1x1x1", "--zero", zero, "--pipeline-schedule", schedule, steps=6)
            require_equal(losses_of(found), losses_of(whole), f"--zero {zero}, {schedule}")


def experts(_):
    """Experts within stages: losses and loads of all layers."""
    place = Place()
    model = [*MODEL, "--experts", "4", "--top-k", "2", "--moe-every", "2", "--capacity", "1.2", "--no-tied-head"]
    for balance in (["--z-loss", "0.001"], ["--balance", "bias"]):
        trains_with_experts(place, [*model, *balance])


def trains_with_experts(place, model):
    whole = place.train(1, *model, "--force", steps=6)
    for ranks, arguments in ((2, ["--pipeline", "2"]), (4, ["--pipeline", "2", "--grid", "1x1x1x2"]), (4, ["--pipeline", "2", "--grid", "2x1x1x1", "--expert-axis", "2"])):
        found = place.train(ranks, *model, *arguments, "--force", steps=6)
        require_equal(losses_of(found), losses_of(whole), f"{arguments}")
        for one, other in zip(found["step"], whole["step"]):
            check(one["experts"] == other["experts"], f"loads with {arguments}: {one['experts']}, not {other['experts']}")


def plans(_):
    """plan-lm predicts the share of a step that stages wait, and a step sends the bytes that it says."""
    model = ["--vocabulary", "300", "--layers", "32", "--hidden", "512", "--heads", "8", "--global-batch", "64", "--no-tied-head"]
    for stages, passes in ((2, 4), (4, 8), (8, 16)):
        done = expect_success(1, ["plan-lm", *model, "--grid", "1x1x1x1", "--pipeline", str(stages), "--accumulate", str(passes),
                                  "--machine", "perlmutter", "--json"])
        for line in map(json.loads, done.stdout.splitlines()):
            share, expected = line["waiting_seconds"] / line["seconds"], (stages - 1) / (passes + stages - 1)
            check(line["pipeline"] == stages and line["ranks"] == stages, f"{line}")
            check(abs(share - expected) < 0.1 * expected, f"{stages} stages, {passes} passes: {share}, not {expected}")
    one, split = (json.loads(expect_success(1, ["plan-lm", *model, "--grid", "1x1x1x1", "--pipeline", "4", "--accumulate", "8", "--machine", "perlmutter",
                                                "--pipeline-schedule", schedule, "--json"]).stdout) for schedule in ("1f1b", "zero-bubble"))
    check(0 < split["waiting_seconds"] < 0.6 * one["waiting_seconds"], f"waiting {split['waiting_seconds']} and {one['waiting_seconds']}")
    check(one["array_bytes"] < split["array_bytes"] < 2.5 * one["array_bytes"], f"memory {split['array_bytes']} and {one['array_bytes']}")
    done = expect_success(1, ["plan-lm", *model, "--grid", "1x2x2x1", "--pipeline", "4", "--accumulate", "8"])
    check("stages of 8, 8, 8, 8 layers" in done.stdout and "--pipeline 4" in done.stdout and "# on 16 ranks" in done.stdout, done.stdout)
    smaller = [json.loads(expect_success(1, ["plan-lm", *model, "--grid", "1x1x1x1", *more, "--json"]).stdout)["array_bytes"]
               for more in ([], ["--pipeline", "4", "--accumulate", "8"])]
    check(smaller[1] < 0.5 * smaller[0], f"memory {smaller}")


def mistakes(_):
    """One line for what cannot be a pipeline."""
    place = Place()
    train = ["train-lm", "--tokens", place.tokens, "--steps", "9", *small("--global-batch", "4")]
    for ranks, arguments, pattern in (
            (3, ["--pipeline", "3"], r"--pipeline 3 has more stages than the model has layers: give at most 2"),
            (3, ["--pipeline", "2"], r"--pipeline 2 does not divide the 3 ranks of the job"),
            (4, ["--pipeline", "2", "--grid", "2x2x1x1"], r"--grid 2x2x1x1 is for 4 ranks"),
            (1, ["--pipeline", "0"], r"--pipeline"),
            (2, ["--pipeline-schedule", "zero-bubble"], r"--pipeline-schedule zero-bubble is for --pipeline"),
            (2, ["--pipeline", "2", "--pipeline-schedule", "zero-bubble", "--experts", "4"], r"zero-bubble is for layers without experts"),
            (2, ["--pipeline", "2", "--pipeline-schedule", "zero-bubble", "--activation-checkpointing", "full"], r"take --recompute in place of"),
            (4, ["--pipeline", "2", "--grid", "2x1x1x1", "--zero", "1"], r"--zero 1 cannot shard a table of two stages"),
            (4, ["--pipeline", "2", "--grid", "2x1x1x1", "--context-axis", "2", "--zero", "3"], r"--zero 3 cannot shard a table of two stages"),
            (2, ["--pipeline", "2", "--lora-rank", "2", "--init-from", "w.h5"], r"--lora-rank 2 cannot be trained in a pipeline")):
        expect_mistake(ranks, [*train, *arguments], pattern)
    expect_mistake(1, ["plan-lm", "--vocabulary", "100", "--pipeline", "2", "--ranks", "4", "--machine", "perlmutter", "--simulate"],
                   r"--simulate simulates no pipelines")
    expect_mistake(1, ["plan-lm", "--vocabulary", "100", "--pipeline", "2", "--ranks", "4", "--grid", "1x2x2x1"], r"--pipeline 2 is for 8 ranks")


def bubbles(_):
    """On an emulated machine where only the calls within a stage take time, a step of K passes on P stages takes (K + P - 1) times as long as a
    pass, within 10 % of the waiting."""
    place = Place()
    machine, metrics, stages = place.file("machine.toml"), place.file("metrics.jsonl"), 4
    with open(machine, "w", encoding="utf-8") as file:
        text = MACHINE.format(ranks_per_node=2, factor=0).replace("= 1e-3", "= 1e-9").replace("= 5e-4", "= 1e-9")
        file.write(text.replace("nodes = 4e5", "nodes = 1e12"))
    model = small("--layers", "8", "--hidden", "32", "--sequence", "32", "--eval-every", "0", "--no-tied-head", "--global-batch", "0")[:-2]

    def seconds_of(passes, grid, *more):
        expect_success(2 * stages, ["train-lm", "--tokens", place.tokens, *model, "--grid", grid, "--pipeline", str(stages), "--accumulate", str(passes),
                                    "--global-batch", str(4 * passes), "--steps", "5", "--metrics", metrics, "--force", *more], ORTHANT_EMULATE=machine)
        with open(metrics, encoding="utf-8") as file:
            return json.loads(file.read().splitlines()[-1])["median_step_seconds"]

    seconds = {passes: seconds_of(passes, "1x2x1x1") for passes in (4, 8, 16)}
    of_pass = (seconds[16] - seconds[4]) / 12
    for passes, of_step in seconds.items():
        share, expected = 1 - passes * of_pass / of_step, (stages - 1) / (passes + stages - 1)
        print(f"{passes} passes: {of_step:.6f} s, waiting {share:.3f}, expected {expected:.3f}")
        check(abs(share - expected) <= 0.1 * expected, f"{passes} passes: a share of {share}, not {expected}")
    # Along z, the weights are gathered forward and back, and their gradients reduced: three parts of equal length, of which the last can wait.
    waits = {}
    for schedule in ("1f1b", "zero-bubble"):
        few, many = (seconds_of(passes, "1x1x1x2", "--pipeline-schedule", schedule) for passes in (4, 16))
        waits[schedule] = few - (many - few) / 3
    print(f"waiting {waits}")
    check(0 < waits["zero-bubble"] < 0.5 * waits["1f1b"], f"split backward passes wait {waits}")


if __name__ == "__main__":
    raise SystemExit(run_part(runs, diverges, goes_on, shards, experts, plans, mistakes, bubbles))
