#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Language models from a text to an evaluation: language_models.py PROGRAM PART"""

import json
import math
import os
import re
import subprocess
import sys
import tempfile

from program import Failure, expect_mistake, expect_success, run_part

WORDS = "the of and a to in is you that it he was for on are as with his they I at be this have from or".split()
GRIDS = {1: ["1x1x1x1"], 2: ["2x1x1x1", "1x1x1x2", "1x1x2x1", "1x2x1x1"], 4: ["1x2x2x1", "2x1x1x2", "1x4x1x1"]}
SMALL = ["--layers", "2", "--hidden", "16", "--heads", "4", "--sequence", "16", "--global-batch", "6", "--compute-dtype", "fp64", "--seed", "7",
         "--warmup-steps", "4", "--min-lr", "1e-4", "--betas", "0.9,0.99"]


def small(*arguments):
    """SMALL without the options that are among the arguments, or that Jorge does not have, and these."""
    without = arguments + ("--betas",) if "jorge" in arguments else arguments
    return [word for name, value in zip(SMALL[::2], SMALL[1::2]) if name not in without for word in (name, value)] + list(arguments)


def check(condition, what):
    if not condition:
        raise Failure(what)


def text(length=3000):
    """Words by a linear congruential generator: the same everywhere."""
    state, words = 1, []
    while sum(map(len, words)) + len(words) <= length:
        state = (1103515245 * state + 12345) % 2**31
        words.append(WORDS[(state >> 16) % len(WORDS)])
    return " ".join(words)[:length]


class Place:
    """A folder with a text and its tokens."""

    def __init__(self, tokenizer="char", content=None):
        self.scratch = tempfile.TemporaryDirectory()
        self.tokens = self.file("t.h5")
        with open(self.file("text.txt"), "wb") as file:
            file.write(content if content is not None else text().encode())
        self.tokenize(tokenizer)

    def tokenize(self, tokenizer="char", *arguments):
        return expect_success(1, ["tokenize", "--input", self.file("text.txt"), "--tokenizer", tokenizer, "-o", self.tokens, "--force", *arguments])

    def file(self, name):
        return os.path.join(self.scratch.name, name)

    def train(self, ranks, *arguments, steps=20, **variables):
        """The lines of the metrics by event."""
        path = self.file("metrics.jsonl")
        if "--resume" not in arguments and os.path.exists(path):
            os.remove(path)
        done = expect_success(ranks, ["train-lm", "--tokens", self.tokens, "--steps", str(steps), "--metrics", path, *small(*arguments)], **variables)
        lines = {}
        with open(path, encoding="utf-8") as file:
            for line in map(json.loads, file):
                lines.setdefault(line["event"], []).append(line)
        lines["output"] = done.stdout
        return lines


def losses_of(lines):
    return {line["step"]: line["loss"] for line in lines["step"]}


def require_equal(found, expected, what):
    check(sorted(found) == sorted(expected), f"{what}: steps {sorted(found)}")
    for step, loss in expected.items():
        check(abs(found[step] - loss) <= 1e-10, f"{what}, step {step}: {found[step]}, not {loss}")


def on_grids(_):
    """The first 20 losses and the evaluations are those of one rank, on every grid, for GPT and Llama, with dropout and accumulation."""
    place = Place()
    for model in ([], ["--arch", "llama", "--kv-heads", "2", "--dropout", "0.1"], ["--accumulate", "2", "--global-batch", "8"]):
        model = [*model, "--eval-every", "10"]
        whole = place.train(1, *model, "--grid", "1x1x1x1")
        check(len(whole["step"]) == 20 and [line["step"] for line in whole["eval"]] == [10, 20], "steps or evaluations are missing")
        check(whole["step"][-1]["loss"] < whole["step"][0]["loss"] - 0.1, "it does not learn")
        for ranks, grids in GRIDS.items():
            for grid in grids:
                found = place.train(ranks, *model, "--grid", grid)
                require_equal(losses_of(found), losses_of(whole), f"{model} on {grid}")
                for one, other in zip(found["eval"], whole["eval"], strict=True):
                    check(one["step"] == other["step"] and abs(one["val_loss"] - other["val_loss"]) <= 1e-10, f"validation loss on {grid}")
                    check(one["val_acc"] == other["val_acc"], f"accuracy on {grid}")
                for one, other in zip(found["step"], whole["step"]):
                    check(abs(one["grad_norm"] - other["grad_norm"]) <= 1e-9 * other["grad_norm"], f"norm on {grid}")
                    check(one["lr"] == other["lr"], "learning rate")
    # The schedule, by hand: 4 steps of warm-up to 1e-3, then a cosine to 1e-4 at step 20.
    expected = [1e-3 * t / 4 if t < 4 else 1e-4 + 0.9e-3 * (1 + math.cos(math.pi * (t - 4) / 16)) / 2 for t in range(1, 21)]
    for line, rate in zip(whole["step"], expected):
        check(abs(line["lr"] - rate) < 1e-15, f"learning rate {line['lr']} in step {line['step']}")


def goes_on(_):
    """A training that was cut in two, on two grids, has the losses of one that was not; and so with a plateau, and with key-value heads
    that ranks share on either grid."""
    place = Place()
    plateau = ["--lr-schedule", "plateau", "--lr-patience", "0", "--lr-factor", "0.5", "--lr", "0.05", "--weight-decay", "0"]
    for model, second in ((["--dropout", "0.1"], "2x1x1x2"), (["--kv-heads", "1"], "1x1x2x2"),
                          (["--arch", "llama", "--kv-heads", "2"], "1x4x1x1"), (plateau, "2x1x1x2")):
        model = [*model, "--eval-every", "2"]
        whole = place.train(1, *model)
        folder = place.file("checkpoints" + model[0])
        writing = [*model, "--checkpoint", folder, "--checkpoint-every", "7"]
        place.train(2, *writing, "--grid", "1x2x1x1")
        shown = expect_success(1, ["info", os.path.join(folder, "latest")]).stdout
        check(re.search(r"next +step 21; the last one had the loss \d.*\nbest +step \d+, validation loss \d", shown), shown)
        for name in os.listdir(folder):  # as if it had stopped behind step 14
            if name in ("checkpoint-000020.h5", "latest"):
                os.remove(os.path.join(folder, name))
        found = place.train(4, *writing, "--grid", second, "--resume", "auto")
        check([run.get("resumed", {}).get("epoch") for run in found["run"]] == [None, 15], "does not go on at step 15")
        require_equal(losses_of(found), losses_of(whole), f"{model} after a resume")
        check([line["step"] for line in found["step"]] == list(range(1, 21)), "steps are there twice")
        check([line["step"] for line in found["eval"]] == list(range(2, 21, 2)), "evaluations are missing or there twice")
        check(abs(found["done"][-1]["best_val_loss"] - whole["done"][-1]["best_val_loss"]) <= 1e-10, "the best validation loss")
        if model[0] == "--lr-schedule":
            rates = {line["lr"] for line in found["step"][5:]}
            check(len(rates) > 1 and {line["lr"] for line in whole["step"][5:]} == rates, f"rates {rates}")
    expect_mistake(1, ["train-lm", "--tokens", place.tokens, "--steps", "20", "--checkpoint", folder, "--resume", "auto",
                       *small("--hidden", "32", "--eval-every", "2")], r"hidden")


def files(_):
    """Tokens, weights and evaluations say the same of one another."""
    place = Place()
    done = expect_success(2, ["info", place.tokens, "--verify"])
    check("2700 tokens of 2700 bytes" in done.stdout and "checksums   all right" in done.stdout, done.stdout)
    weights = place.file("w.h5")
    trained = place.train(1, "--save-weights", weights, "--eval-every", "5")
    check(os.path.exists(place.file("w-best.h5")), "no weights of the best step")
    for arguments in (["--grid", "1x1x1x2"], ["--grid", "2x1x1x1", "--global-batch", "5"]):
        metrics = place.file("e.jsonl")
        done = expect_success(2, ["evaluate-lm", "--tokens", place.tokens, "--weights", weights, "--compute-dtype", "fp64", "--metrics", metrics, *arguments])
        with open(metrics, encoding="utf-8") as file:
            line = [json.loads(each) for each in file][-1]
        os.remove(metrics)
        loss = trained["eval"][-1]["val_loss"]
        check(abs(line["val_loss"] - loss) <= 1e-10, f"{line['val_loss']}, not {loss}")
        check(line["num_tokens"] == 299, f"{line['num_tokens']} predicted")
        check(abs(line["perplexity"] - math.exp(loss)) < 1e-9 and abs(line["bits_per_byte"] - loss / math.log(2)) < 1e-9, "perplexity or bits")
        check(re.search(r"perplexity +\d", done.stdout), "says no perplexity")
    shown = expect_success(1, ["info", weights]).stdout
    check("2 layers x 16" in shown and "wte.weight" in shown, shown)
    again = place.train(1, "--init-from", weights, "--lr", "1e-5", "--min-lr", "0", steps=5)
    # The same sequences as those of the first step, with what 20 steps have learned.
    first, learned = trained["step"][0]["loss"], trained["step"][0]["loss"] - trained["step"][-1]["loss"]
    check(abs(first - again["step"][0]["loss"] - learned) < 0.25 * learned, f"does not begin with the weights: {again['step'][0]['loss']}")
    expect_mistake(1, ["train-lm", "--tokens", place.tokens, *small("--layers", "3", "--init-from", weights)], r"layers")
    evaluate = ["evaluate-lm", "--tokens", place.tokens, "--weights", weights]
    expect_mistake(2, [*evaluate, "--global-batch", "100000000"], r"evaluate-lm needs .*--force-memory")
    expect_mistake(1, [*evaluate, "--global-batch", "9223372036854775807"], r"is more than any machine holds")
    expect_mistake(2, [*evaluate, "--grid", "2x1x1x1", "--expert-axis", "2"], r"--expert-axis 2: the model of '.*w\.h5' has no experts")
    # Positions beyond the trained sequences are not evaluated unless asked for.
    longer = place.file("longer.h5")
    trained = place.train(1, "--positions", "40", "--save-weights", longer, "--clip-norm", "0", steps=5)
    check("sequences of 16 tokens" in expect_success(1, ["info", longer]).stdout, "info does not say the length of sequences")
    for arguments, is_same in (([], True), (["--sequence", "16"], True), (["--sequence", "40"], False)):
        metrics = place.file("e.jsonl")
        expect_success(1, ["evaluate-lm", "--tokens", place.tokens, "--weights", longer, "--compute-dtype", "fp64", "--metrics", metrics, *arguments])
        with open(metrics, encoding="utf-8") as file:
            loss = [json.loads(each) for each in file][-1]["val_loss"]
        os.remove(metrics)
        check((abs(loss - trained["eval"][-1]["val_loss"]) <= 1e-10) == is_same, f"{arguments}: {loss}")
    with open(place.file("text.txt"), "w", encoding="ascii") as file:
        file.write(text().upper())
    place.tokenize()
    for command in (["evaluate-lm", "--weights", weights], ["train-lm", *small("--init-from", weights)]):
        expect_mistake(1, [*command, "--tokens", place.tokens], r"was trained on another vocabulary than that of .* --init-skip wte\.weight learns")
    # Its tables learned anew: all else is the file's to the bit (of fp64, at this rate), and they are those of a new model.
    still = ["--warmup-steps", "0", "--lr", "1e-30", "--min-lr", "0", "--weight-decay", "0"]
    moved, fresh = place.file("moved.h5"), place.file("fresh.h5")
    place.train(2, "--init-from", weights, "--init-skip", "wte.*", "--save-weights", moved, *still, steps=1)
    place.train(1, "--save-weights", fresh, *still, steps=1)
    for name, one, other, is_same in (("wte.weight", moved, fresh, True), ("h.1.attn.c_attn.weight", moved, weights, True),
                                      ("wpe.weight", moved, weights, True), ("wpe.weight", moved, fresh, False)):
        same = subprocess.run(["h5diff", one, other, "/parameters/" + name], capture_output=True, text=True, check=False)
        check((same.returncode == 0) == is_same, f"{name}: {same.stdout[:200]}")
    # Letters of the other case in the same order: the same tokens of another vocabulary.
    for content in ("abcd" * 200, "ABCD" * 200):
        with open(place.file("text.txt"), "w", encoding="ascii") as file:
            file.write(content)
        place.tokenize()
        going = ["train-lm", "--tokens", place.tokens, *small(), "--steps", "6", "--checkpoint", place.file("checkpoints"), "--resume", "auto"]
        if content[0] == "a":
            expect_success(1, going)
    expect_mistake(1, going, r"vocabulary")
    with open(place.file("text.txt"), "w", encoding="ascii") as file:
        file.write(text())
    # The same text by bytes: another vocabulary.
    place.tokenize("byte")
    expect_mistake(1, ["evaluate-lm", "--tokens", place.tokens, "--weights", weights], r"was trained on another vocabulary")
    found = place.train(1, "--preset", "llama-cpu", steps=6)
    configuration, sources = found["run"][0]["configuration"], found["run"][0]["sources"]
    check(configuration["arch"] == "llama" and sources["arch"] == "preset", "the preset is not in the record")
    check(configuration["layers"] == 2 and sources["layers"] == "flag", "a flag does not override the preset")
    check(configuration["bias"] is False and configuration["kv-heads"] == 2, "what the preset implies")
    # Its other options go with a rate that stays as it is, and 4 heads with 3 ranks.
    path = place.file("auto.jsonl")
    expect_success(3, ["train-lm", "--tokens", place.tokens, "--preset", "nanogpt-cpu", "--lr-schedule", "constant", "--steps", "101",
                       "--hidden", "8", "--sequence", "4", "--eval-every", "0", "--metrics", path])
    with open(path, encoding="utf-8") as file:
        run = json.loads(file.readline())
    check(run["grid"] == "3x1x1x1" and run["configuration"]["min-lr"] == 0, f"grid {run['grid']}")


def experts(_):
    """Losses, loads and evaluations with experts are those of one rank on every grid and expert axis, and after resumes onto other ones."""
    place = Place()
    model = ["--experts", "8", "--top-k", "2", "--moe-every", "2", "--shared-experts", "2", "--capacity", "1.2", "--router-noise", "0.1",
             "--z-loss", "0.001", "--global-batch", "8", "--eval-every", "6"]
    weights = place.file("w.h5")
    whole = place.train(1, *model, "--grid", "1x1x1x1", "--save-weights", weights, steps=12)
    check(whole["step"][-1]["loss"] < whole["step"][0]["loss"] - 0.1, "it does not learn")
    for line in whole["step"]:
        (load,) = line["experts"]
        check(load["layer"] == 1 and len(load["tokens"]) == 8 and sum(load["tokens"]) == 8 * 16 * 2, f"load {load}")
        limit = math.ceil(1.2 * 8 * 16 * 2 / 8)
        check(load["dropped"] == sum(max(0, tokens - limit) for tokens in load["tokens"]), f"dropped {load}")
        check(abs(load["imbalance"] - max(load["tokens"]) / 32) < 1e-12, f"imbalance {load}")
        entropy = -sum(n / 256 * math.log(n / 256) for n in load["tokens"] if n > 0)
        check(abs(load["entropy"] - entropy) < 1e-12, f"entropy {load}")
    check(re.search(r"experts of layer 1 +imbalance \d", whole["output"]), "no load in the summary")
    for ranks, grid, axis in ((2, "2x1x1x1", "1"), (2, "2x1x1x1", "2"), (4, "4x1x1x1", "2"), (4, "2x2x1x1", "2"), (4, "2x1x1x2", "2"),
                              (4, "auto", "2")):
        found = place.train(ranks, *model, "--grid", grid, "--expert-axis", axis, steps=12)
        require_equal(losses_of(found), losses_of(whole), f"{grid}, expert axis {axis}")
        check(grid in ("auto", found["run"][0]["grid"]), f"{grid} is recorded as {found['run'][0]['grid']}")
        check([line["experts"] for line in found["step"]] == [line["experts"] for line in whole["step"]], f"loads on {grid}, {axis}")
        check(abs(found["eval"][-1]["val_loss"] - whole["eval"][-1]["val_loss"]) <= 1e-10, f"validation loss on {grid}, {axis}")
        check(abs(found["step"][-1]["grad_norm"] - whole["step"][-1]["grad_norm"]) <= 1e-9, f"norm on {grid}, {axis}")
    evaluate = ["evaluate-lm", "--tokens", place.tokens, "--weights", weights, "--compute-dtype", "fp64"]
    metrics = place.file("e.jsonl")
    for ranks, grid in ((2, ["1x2x1x1"]), (2, ["2x1x1x1", "--expert-axis", "2"]), (4, ["2x2x1x1", "--expert-axis", "2"]),
                        (4, ["4x1x1x1", "--expert-axis", "4"]), (4, ["auto", "--expert-axis", "2"])):
        expect_success(ranks, [*evaluate, "--metrics", metrics, "--force", "--global-batch", "5", "--grid", *grid])
        with open(metrics, encoding="utf-8") as file:
            loss = [json.loads(each) for each in file][-1]["val_loss"]
        check(abs(loss - whole["eval"][-1]["val_loss"]) <= 1e-10, f"evaluated {loss} on {grid}")
    expect_success(4, [*evaluate, "--grid", "4x1x1x1", "--expert-axis", "4"])  # its own number of windows
    for ranks, arguments, pattern in ((3, ["--grid", "3x1x1x1", "--expert-axis", "3"], r"--experts 8 cannot be dealt to the 3 ranks"),
                                      (2, ["--grid", "1x2x1x1", "--expert-axis", "2"], r"--expert-axis 2 does not divide the 1 data groups"),
                                      (2, ["--expert-axis", "3"], r"--expert-axis 3 does not divide the 2 ranks"),
                                      (1, ["--expert-axis", "0"], r"--expert-axis")):
        expect_mistake(ranks, [*evaluate, *arguments], pattern)

    unlimited = [place.train(1, "--experts", "4", "--top-k", "2", "--capacity", capacity, "--accumulate", "2", steps=6) for capacity in ("none", "100")]
    require_equal(losses_of(unlimited[1]), losses_of(unlimited[0]), "a capacity that nobody reaches")

    folder = place.file("checkpoints")
    writing = [*model, "--checkpoint", folder, "--checkpoint-every", "4", "--checkpoint-keep", "3"]
    place.train(8, *writing, "--grid", "8x1x1x1", "--expert-axis", "8", steps=12)
    for left, ranks in ((4, 2), (8, 4)):
        for name in os.listdir(folder):  # as if it had stopped behind step 4, and then 8
            if name == "latest" or int(re.search(r"\d+", name).group()) > left:
                os.remove(os.path.join(folder, name))
        found = place.train(ranks, *writing, "--grid", f"{ranks}x1x1x1", "--expert-axis", str(ranks), "--resume", "auto", steps=12)
        check(found["run"][-1]["resumed"]["epoch"] == left + 1, "does not go on behind the checkpoint")
        require_equal(losses_of(found), losses_of(whole), f"a resume onto {ranks} ranks of the expert axis")


def capacity_groups(_):
    """With --capacity-group rank, losses and loads are those of as many ranks along data, whatever the other axes and the expert axis."""
    place = Place()
    model = ["--experts", "8", "--top-k", "2", "--moe-every", "2", "--capacity", "0.9", "--global-batch", "8", "--eval-every", "0"]

    def train(grid, *more, group="rank"):
        ranks = math.prod(map(int, grid.split("x")))
        return place.train(ranks, *model, "--capacity-group", group, "--grid", grid, *more, steps=8)

    def require_same(found, expected, what):
        require_equal(losses_of(found), losses_of(expected), what)
        check([line["experts"] for line in found["step"]] == [line["experts"] for line in expected["step"]], f"loads of {what}")

    of_step = train("1x1x1x1", group="step")
    require_same(train("1x1x1x1"), of_step, "one rank is all of a step")
    require_same(train("2x1x1x1", group="step"), of_step, "the grid does not matter to step")
    two = train("2x1x1x1")
    check(losses_of(two) != losses_of(of_step), "two ranks have no slots of their own")
    check(sum(line["experts"][0]["dropped"] for line in two["step"]) > 0, "nothing is dropped")
    for grid, axis in (("2x1x1x1", "2"), ("2x2x1x1", "1"), ("2x1x2x1", "2"), ("2x1x1x2", "1"), ("2x1x1x2", "2")):
        require_same(train(grid, "--expert-axis", axis), two, f"{grid}, expert axis {axis}")


def presets(_):
    """Mixtral's shape: its numbers, and the small one learns on grids."""
    large = ["plan-lm", "--preset", "mixtral-8x7b", "--vocabulary", "32000", "--ranks", "256", "--sequence", "4096",
             "--activation-checkpointing", "full", "--machine", "perlmutter", "--top", "1", "--json"]
    # 46,702,792,704 parameters (arXiv 2401.04088: 47B), and Adam two moments of each.
    found = json.loads(expect_success(1, large).stdout)["checkpoint_bytes"]
    check(abs(found / (12 * 46702792704) - 1) < 1e-5, f"Mixtral has {found / 12} parameters")
    place = Place()
    model = ["--preset", "mixtral-cpu", "--hidden", "32", "--sequence", "16", "--compute-dtype", "fp64", "--steps", "12", "--warmup-steps", "2",
             "--eval-every", "0"]

    def train(ranks, *grid):
        metrics = place.file("p.jsonl")
        expect_success(ranks, ["train-lm", "--tokens", place.tokens, *model, "--force", "--metrics", metrics, *grid])
        with open(metrics, encoding="utf-8") as file:
            return [line for line in map(json.loads, file) if line["event"] == "step"]

    whole = train(1)
    check(whole[-1]["loss"] < whole[0]["loss"] - 0.3, "it does not learn")
    check(len(whole[0]["experts"]) == 4 and sum(whole[0]["experts"][0]["tokens"]) == 2 * 12 * 16, f"experts {whole[0]['experts']}")
    for one, other in zip(train(4, "--grid", "2x2x1x1", "--expert-axis", "2"), whole, strict=True):
        check(abs(one["loss"] - other["loss"]) <= 1e-10, f"loss {one['loss']}, not {other['loss']}")


def overwrite(path, found, offset, byte):
    with open(path, "r+b") as file:
        content = file.read()
        place = content.index(found) + offset
        file.seek(place)
        file.write(bytes([byte]))


def mistakes(_):
    place = Place()
    os.link(place.file("text.txt"), place.file("a.npy"))
    train = ["train-lm", "--tokens", place.tokens]
    for ranks, arguments, pattern in (
            (1, ["train-lm"], r"give --tokens"),
            (1, ["train-lm", "--tokens", place.file("text.txt")], r"text\.txt"),
            (1, ["train-lm", "--tokens", place.file("nowhere.h5")], r"nowhere\.h5"),
            (3, train + small("--grid", "1x3x1x1"), r"heads"),
            (1, train + small("--heads", "3"), r"width of 16 is not divisible by 3 heads"),
            (1, train + small("--kv-heads", "3"), r"key-value heads"),
            (1, train + small("--positions", "8"), r"--sequence 16 is longer than the 8 positions of the model"),
            (3, train + small("--grid", "3x1x1x1", "--global-batch", "2"), r"2 sequences per pass are fewer than the 3 ranks along data and z"),
            (2, train + small("--grid", "1x1x1x2", "--accumulate", "6"), r"1 sequences per pass are fewer than the 2 ranks"),
            (1, train + small("--accumulate", "4"), r"--accumulate 4 does not divide the 6 sequences"),
            (1, train + small("--experts", "4", "--top-k", "5"), r"--top-k 5: a token takes at least 1 of the 4 experts"),
            (1, train + small("--experts", "4", "--capacity", "0"), r"--capacity"),
            (1, train + small("--experts", "4", "--moe-every", "3"), r"--moe-every 3: no layer of 2 would have experts"),
            (2, train + small("--experts", "3", "--grid", "2x1x1x1", "--expert-axis", "2"), r"--experts 3 cannot be dealt to the 2 ranks"),
            (2, train + small("--experts", "8", "--grid", "2x1x1x1", "--expert-axis", "4"), r"--expert-axis 4 does not divide the 2 data groups of --grid 2x1x1x1"),
            (2, train + small("--experts", "8", "--expert-axis", "3"), r"--expert-axis 3 does not divide the 2 ranks"),
            (1, train + small("--experts", "4", "--shared-experts", "-1"), r"--shared-experts"),
            (1, train + small("--experts", "4", "--shared-experts", "16384", "--feed-forward", "1048576", "--hidden", "1048576", "--layers", "10000"),
             r"--shared-experts 16384 .*more than any machine holds"),
            (1, train + small("--shared-experts", "2"), r"--shared-experts is for layers with experts; give --experts"),
            (2, train + small("--experts", "4", "--capacity-group", "rank"), r"--capacity-group rank without a limit .*give --capacity R"),
            (1, train + small("--experts", "4", "--capacity", "1", "--capacity-group", "all"), r"'all' is none of step, rank"),
            (1, train + small("--top-k", "2"), r"--top-k is for layers with experts; give --experts"),
            (1, train + small("--sequence", "5000"), r"--sequence 5000 needs 5001 training tokens"),
            (1, train + small("--steps", "4"), r"--warmup-steps 4 of a training of 4 steps"),
            (1, train + small("--min-lr", "1"), r"--min-lr 1 is more than --lr"),
            (1, train + small("--lr-schedule", "constant"), r"--min-lr .*another --lr-schedule than constant"),
            (1, train + small("--lr-schedule", "step"), r"needs --lr-step"),
            (1, train + small("--lr-schedule", "plateau", "--eval-every", "0"), r"plateau goes by evaluations"),
            (1, train + small("--lr-step", "2"), r"--lr-step is for --lr-schedule step"),
            (1, train + small("--betas", "0.9,0.9", "--optimizer", "sgd"), r"--betas are of Adam"),
            (1, train + small("--betas", "0.9"), r"--betas takes two numbers"),
            (1, train + small("--preset", "gpt3"), r"'gpt3' is none of none, nanogpt-cpu"),
            (1, train + ["--preset", "gpt2", "--lr", "1e-5", "--min-lr", "1e-4"], r"--min-lr 0\.0001 is more than --lr 1e-05"),
            (1, train + ["--preset", "gpt2", "--steps", "100", "--warmup-steps", "100"], r"--warmup-steps 100 of a training of 100 steps"),
            (1, train + small("--sequence", "9223372036854775807"), r"--sequence 9223372036854775807 needs"),
            (1, train + small("--global-batch", "9223372036854775807"), r"is more than any machine holds"),
            (2, train + small("--positions", "9223372036854775807"), r"--positions .*is more than any machine holds"),
            (1, train + small("--accumulate", "1000000000"), r"--accumulate"),
            (1, train + small("--activation-checkpointing", "some"), r"some"),
            (1, train + small("--eval-every", "0", "--save-best", place.file("b.h5")), r"--save-best goes by evaluations"),
            (1, ["evaluate-lm", "--tokens", place.tokens], r"give --weights"),
            (1, ["evaluate-lm", "--tokens", place.tokens, "--weights", place.tokens], r"records no language model"),
            (1, ["tokenize"], r"name the text with --input"),
            (1, ["tokenize", "--input", place.file("text.txt")], r"name the file to write"),
            (1, ["tokenize", "--input", place.file("text.txt"), "-o", place.tokens], r"t\.h5"),
            (1, ["tokenize", "--input", place.file("text.txt"), "-o", place.file("x.h5"), "--tokenizer", "bpe"], r"--tokenizer is char, byte, or a tokenizer's file or folder; there is no 'bpe'"),
            (2, ["tokenize", "--input", place.file("text.txt"), "-o", place.file("x.h5"), "--threads", "2"], r"--threads has no effect with --tokenizer char; it is for a tokenizer's file"),
            (1, ["tokenize", "--input", place.file("text.txt"), "-o", place.file("x.h5"), "--tokenizer", "char", "--train-bpe", "9"], r"--tokenizer has no effect with --train-bpe"),
            (2, ["tokenize", "--input", place.file("a.npy"), "-o", place.file("x.h5"), "--train-bpe", "9"], r"--train-bpe learns from texts; '.*a\.npy' holds token numbers")):
        expect_mistake(ranks, arguments, pattern)
    place.tokenize("char", "--train-fraction", "1")
    expect_mistake(1, train + SMALL, r"has no validation part")
    # Files that are damaged, on several ranks: a number that is no token, a wrong one, and half a file.
    damaged = Place("byte", b"ORTHANT" * 200)
    train = ["train-lm", "--tokens", damaged.tokens]
    overwrite(damaged.tokens, b"O\0R\0T\0", 3, 7)
    expect_mistake(3, train + small("--grid", "1x1x1x3"), r"is damaged: /tokens/train holds token \d+, and its vocabulary has 256")
    damaged.tokenize("byte")
    overwrite(damaged.tokens, b"O\0R\0T\0", 2, ord("S"))
    expect_mistake(3, train + small("--grid", "3x1x1x1"), r"is damaged: the checksum of /tokens/train is wrong")
    with open(damaged.tokens, "r+b") as file:
        file.truncate(2000)
    expect_mistake(2, train + SMALL, r"t\.h5 is truncated or damaged")


if __name__ == "__main__":
    raise SystemExit(run_part(on_grids, goes_on, files, experts, capacity_groups, presets, mistakes))
