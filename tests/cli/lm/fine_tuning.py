#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trainings of some of the weights, by other losses, on packed documents or on shared sequences: fine_tuning.py PROGRAM PART"""

import json
import math
import os
import re
import subprocess
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), *parts) for parts in ([], [".."], ["..", "machines"], ["..", "..", "faults"])]
import hdf5  # noqa: E402
from emulation import MACHINE  # noqa: E402
from hf_models import read_npy, write_npy  # noqa: E402
from language_models import GRIDS, WORDS, Place, check, losses_of, require_equal, small  # noqa: E402
from program import PROGRAM, expect_mistake, expect_success, run_part  # noqa: E402


def has_same_bits(one, other, name):
    """Whether two weights files have the same numbers in the array `name`."""
    done = subprocess.run(["h5diff", one, other, "/parameters/" + name], capture_output=True, text=True, check=False)
    check(done.returncode in (0, 1), done.stderr)
    return done.returncode == 0


def goes_on(place, tuning, whole, folder):
    """A training that goes on from step 14 of 20, on another grid, has the losses of the whole one."""
    folder = place.file(folder)
    writing = [*tuning, "--checkpoint", folder, "--checkpoint-every", "7"]
    place.train(2, *writing, "--grid", "1x2x1x1")
    for name in ("checkpoint-000020.h5", "latest"):
        os.remove(os.path.join(folder, name))
    found = place.train(4, *writing, "--grid", "2x1x1x2", "--resume", "auto")
    require_equal(losses_of(found), losses_of(whole), "losses after a resume")


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
    goes_on(place, tuning, whole, "checkpoints")
    shown = expect_success(1, ["info", place.file("checkpoints/latest")]).stdout
    check("wte.weight" in shown, shown)
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


def val_loss(place, weights, *arguments, ranks=1):
    metrics = place.file("e.jsonl")
    expect_success(ranks, ["evaluate-lm", "--tokens", place.tokens, "--weights", weights, "--compute-dtype", "fp64", "--metrics", metrics, *arguments])
    with open(metrics, encoding="utf-8") as file:
        loss = [json.loads(line) for line in file][-1]["val_loss"]
    os.remove(metrics)
    return loss


def adapters(_):
    """Low-rank adapters: the losses of one rank on every grid and after a resume, a base that keeps its bits, and one network in
    training, evaluation and export."""
    place = Place()
    for model, targets, names in ((["--arch", "llama", "--kv-heads", "2", "--dropout", "0.1"], "q,v,o,gate,down", ["attn.c_attn", "mlp.c_fc", "mlp.c_proj"]),
                                  (["--activation", "gelu_tanh"], "k,up", ["attn.c_attn", "mlp.c_fc"])):
        weights, tuned = place.file("w.h5"), place.file("tuned.h5")
        place.train(1, *model, "--save-weights", weights, "--force", steps=10)
        tuning = [*model, "--init-from", weights, "--save-weights", tuned, "--lora-rank", "3", "--lora-alpha", "6", "--lora-targets", targets, "--lr",
                  "0.02", "--accumulate", "2", "--global-batch", "8", "--eval-every", "10", "--force"]
        whole = place.train(1, *tuning)
        check(whole["step"][-1]["loss"] < whole["step"][0]["loss"] - 0.005, f"it does not learn: {losses_of(whole)}")
        check(re.search(r"trains +\d+ of \d+ parameters", whole["output"]), whole["output"])
        loss = whole["eval"][-1]["val_loss"]
        for ranks, grids in GRIDS.items():
            for grid in grids:
                found = place.train(ranks, *tuning, "--grid", grid)
                require_equal(losses_of(found), losses_of(whole), f"losses on {grid}")
                check(abs(found["eval"][-1]["val_loss"] - loss) <= 1e-10, f"validation loss on {grid}")
                for name in ["wte.weight", "ln_f.weight", *(f"h.1.{name}.weight" for name in names)]:
                    check(has_same_bits(weights, tuned, name), f"{name} after a training on {grid}")
        for ranks, grid in ((1, "1x1x1x1"), (2, "1x2x1x1"), (2, "1x1x1x2")):
            check(abs(val_loss(place, tuned, "--grid", grid, ranks=ranks) - loss) <= 1e-10, "the loss of evaluate-lm")
        check(abs(val_loss(place, weights) - loss) > 0.002, "the adapters have no effect")
        folder, back = place.file("hf" + targets), place.file("back.h5")
        expect_success(1, ["export-weights", tuned, "-o", folder, "--format", "hf"])
        expect_success(1, ["import-weights", folder, "-o", back, "--force"])
        check(abs(val_loss(place, back, "--sequence", "16") - loss) <= 1e-10, "the loss of the exported weights")
        goes_on(place, tuning, whole, "checkpoints" + targets)
        check(has_same_bits(weights, tuned, "h.0.attn.c_attn.weight"), "the base after a resume")
        # Adapters of adapted weights: these are the base now.
        again = place.train(1, *[tuned if word == weights else place.file("again.h5") if word == tuned else word for word in tuning], steps=6)
        check(again["step"][0]["loss"] < whole["step"][0]["loss"] - 0.002, "does not begin with both")
    peft = place.file("peft")
    expect_success(1, ["export-weights", tuned, "-o", peft, "--format", "peft"])
    with open(os.path.join(peft, "adapter_config.json"), encoding="utf-8") as file:
        config = json.load(file)
    check(config["r"] == 3 and config["lora_alpha"] == 6 and config["target_modules"] == ["attn.c_attn", "mlp.c_fc"], f"{config}")
    train = ["train-lm", "--tokens", place.tokens, "--steps", "20", *small("--lora-rank", "2")]
    for more in ([], ["--resume", "auto", "--checkpoint", place.file("new")]):
        expect_mistake(2, [*train, *more], r"--lora-rank 2 adapts weights that are trained; name them with --init-from")
    with_weights = [*train, "--init-from", weights, "--activation", "gelu_tanh"]
    expect_mistake(2, [*with_weights, "--lora-targets", "q,x"], r"--lora-targets: 'x' is none of q, k, v, o, gate, up, down")
    expect_mistake(2, [*with_weights, "--lora-targets", "q,q"], r"--lora-targets has q twice")
    expect_mistake(2, [*with_weights, "--lora-targets", "gate"], r"--lora-targets gate is for --activation swiglu")
    expect_mistake(2, [*with_weights, "--freeze", "h.0.*"], r"--freeze h\.0\.\*: with --lora-rank all weights are frozen")
    expect_mistake(2, ["train-lm", "--tokens", place.tokens, "--lora-alpha", "8"], r"--lora-alpha is of adapters; give --lora-rank, too")
    expect_mistake(1, ["export-weights", weights, "-o", place.file("none"), "--format", "peft"], r"'.*w\.h5' has no adapters; train-lm --lora-rank trains some")


def leaves_out(tokens, one_in):
    """The hash of --goldfish, by its definition."""
    hashed, mask = 0, 2**64 - 1
    for token in tokens:
        hashed = (hashed + 0x9E3779B97F4A7C15 + token) & mask
        hashed = ((hashed ^ (hashed >> 30)) * 0xBF58476D1CE4E5B9) & mask
        hashed = ((hashed ^ (hashed >> 27)) * 0x94D049BB133111EB) & mask
        hashed ^= hashed >> 31
    return hashed % one_in == 0


def losses(_):
    """--goldfish, --label-smoothing and --logit-z-loss: the losses of one rank on every grid, evaluations without either, and the first loss by hand."""
    place = Place(content=b"abcd" * 200)  # 720 tokens to train on: the same 4 contexts everywhere
    plain = place.train(1, "--eval-every", "10", steps=10)
    tokens = sorted("abcd")
    for history in range(1, 9):
        contexts = [[(start + k) % 4 for k in range(history)] for start in range(4)]
        left_out = [tokens[(context[-1] + 1) % 4] for context in contexts if leaves_out(context, 2)]
        if 0 < len(left_out) < 4:
            break
    goldfish = ["--goldfish", f"2,{history}", "--eval-every", "10"]
    place.train(1, *goldfish, "--save-weights", place.file("w.h5"), "--force", steps=300)
    # Tokens that are never trained are not predicted: the validation loss stays high, with the share of these.
    with_all = place.train(1, "--eval-every", "300", steps=300)["eval"][-1]
    without = place.train(1, "--goldfish", f"2,{history}", "--eval-every", "300", steps=300)["eval"][-1]
    check(with_all["val_acc"] > 0.99 and abs(without["val_acc"] - (1 - len(left_out) / 4)) < 0.02, f"{left_out}: {with_all}, {without}")
    for words in (goldfish, ["--label-smoothing", "0.2", "--eval-every", "10"], [*goldfish, "--label-smoothing", "0.1", "--logit-z-loss", "0.01", "--accumulate", "2", "--global-batch", "8"]):
        whole = place.train(1, *words)
        for ranks, grids in GRIDS.items():
            for grid in grids:
                found = place.train(ranks, *words, "--grid", grid)
                require_equal(losses_of(found), losses_of(whole), f"{words} on {grid}")
                check(abs(found["eval"][-1]["val_loss"] - whole["eval"][-1]["val_loss"]) <= 1e-10, f"validation loss of {words} on {grid}")
    # With weights near zero all logits are near zero: (1 - e) log V + e log V, and a smoothed loss stays above the entropy of its targets.
    smoothed = losses_of(place.train(1, "--label-smoothing", "0.2", "--lr", "0.01", steps=300))[300]
    share = 0.2 / 4
    entropy = -(1 - 3 * share) * math.log(1 - 3 * share) - 3 * share * math.log(share)
    check(entropy - 1e-9 < smoothed < entropy + 0.01, f"{smoothed}, not {entropy}")
    check(losses_of(plain)[1] > 1, "a loss before training")
    # The log of the sum of their exponentials is then near log V; evaluations leave the z-loss out.
    with_z = place.train(1, "--logit-z-loss", "0.5", "--eval-every", "10", steps=10)
    check(abs(losses_of(with_z)[1] - losses_of(plain)[1] - 0.5 * math.log(4) ** 2) < 0.15, f"{losses_of(with_z)}, {losses_of(plain)}")
    check(with_z["eval"][-1]["val_loss"] < losses_of(with_z)[10] - 0.3, f"{with_z['eval']}")
    train = ["train-lm", "--tokens", place.tokens]
    for word in ("4", "1,13", "4,0", "4,13,1", "four", "-4,13"):
        expect_mistake(1, [*train, "--goldfish", word], rf"--goldfish '{word}': give none, or K,H such as 4,13")
    expect_mistake(1, [*train, "--label-smoothing", "1"], r"--label-smoothing: is 1, but must be at least 0 and at most 0\.999")


def place_of_documents():
    """A token file of documents of 1 to 23 words, with an end token behind each."""
    place = Place()
    with open(place.file("documents.jsonl"), "w", encoding="utf-8") as file:
        for d in range(160):
            file.write(json.dumps({"text": " ".join(WORDS[(7 * d + w * w) % len(WORDS)] for w in range(1 + d * d % 23))}) + "\n")
    expect_success(1, ["tokenize", "--input", place.file("documents.jsonl"), "--train-bpe", "40", "-o", place.tokens, "--force"])
    return place


def loss_of_documents(place, weights, sequence):
    """The mean loss of the validation part in windows of `sequence` tokens, from the logits of its documents one by one."""
    with hdf5.File(hdf5.Library(hdf5.library_of(PROGRAM)), place.tokens) as file:
        tokens = [int(token) for token in file.read("/tokens/valid").values]
    end, rows, targets = 296, [], []  # 256 bytes, 40 merges, the end token
    check(end in tokens, "there is no end token")
    for begin in range(0, len(tokens) - 1, sequence):
        for t in range(begin, min(begin + sequence, len(tokens) - 1)):
            if t == begin or tokens[t - 1] == end:
                rows.append([])
                targets.append([])
            rows[-1].append(tokens[t])
            targets[-1].append(tokens[t + 1])
    check(len(rows) > 20 and max(map(len, rows)) <= sequence, f"{len(rows)} documents")
    write_npy(place.file("ids.npy"), [row + [0] * (sequence - len(row)) for row in rows])
    expect_success(1, ["evaluate-lm", "--weights", weights, "--ids", place.file("ids.npy"), "--logits", place.file("logits.npy"), "--compute-dtype", "fp64", "--force"])
    shape, logits = read_npy(place.file("logits.npy"))
    total, count = 0.0, 0
    for d, row in enumerate(targets):
        for t, target in enumerate(row):
            of_token = logits[(d * sequence + t) * shape[2]:(d * sequence + t + 1) * shape[2]]
            total += math.log(sum(map(math.exp, of_token))) - of_token[target]
            count += 1
    return total / count


def documents(_):
    """--document-mask: losses of documents one by one, on every grid, after a resume and in evaluations; files without an end token are refused."""
    place = place_of_documents()
    weights = place.file("w.h5")
    for model in ([], ["--arch", "llama", "--kv-heads", "2", "--dropout", "0.1", "--accumulate", "2", "--global-batch", "8"]):
        model = [*model, "--eval-every", "10", "--lr", "0.01", "--save-weights", weights, "--force"]
        without = place.train(1, *model)
        model.append("--document-mask")
        whole = place.train(1, *model)
        check(whole["step"][-1]["loss"] < whole["step"][0]["loss"] - 0.3, f"it does not learn: {losses_of(whole)}")
        check(abs(losses_of(whole)[1] - losses_of(without)[1]) > 1e-5, "the mask has no effect")
        loss = whole["eval"][-1]["val_loss"]
        one_by_one = loss_of_documents(place, weights, 16)
        check(abs(one_by_one - loss) <= 1e-10, f"{one_by_one} of the documents, not {loss}")
        for ranks, grids in GRIDS.items():
            for grid in grids:
                found = place.train(ranks, *model, "--grid", grid)
                require_equal(losses_of(found), losses_of(whole), f"losses on {grid}")
                check(abs(found["eval"][-1]["val_loss"] - loss) <= 1e-10, f"validation loss on {grid}")
        for ranks, grid in ((1, "1x1x1x1"), (2, "1x2x1x1"), (2, "1x1x1x2")):
            check(abs(val_loss(place, weights, "--document-mask", "--grid", grid, ranks=ranks) - loss) <= 1e-10, "the loss of evaluate-lm")
        check(abs(val_loss(place, weights) - loss) > 1e-6, "evaluate-lm has no other loss without")
        goes_on(place, model, whole, f"checkpoints{len(model)}")
    evaluate = ["evaluate-lm", "--weights", weights, "--document-mask"]
    expect_mistake(2, [*evaluate, "--tokens", place.tokens, "--stride", "4"], r"--document-mask is for --tokens without --stride: leave it out")
    expect_mistake(1, [*evaluate, "--ids", place.file("ids.npy"), "--logits", place.file("l.npy")], r"--document-mask is for --tokens without --stride")
    with open(place.file("one.txt"), "w", encoding="utf-8") as file:
        file.write(" ".join(WORDS * 40))
    expect_success(1, ["tokenize", "--input", place.file("one.txt"), "--train-bpe", "40", "-o", place.tokens, "--force"])
    for ranks, words in ((2, ["train-lm", *small("--document-mask"), "--save-weights", weights, "--force"]), (1, evaluate)):
        done = expect_success(ranks, [*words, "--tokens", place.tokens])
        check(done.stderr.count("--document-mask changes nothing: '") == 1, f"{words[0]} says: {done.stderr}")
    planned = expect_success(1, ["plan-lm", "--tokens", place.tokens, "--ranks", "2", "--document-mask"])
    check("document-mask" not in planned.stderr and "--document-mask" in planned.stdout, f"plan-lm says: {planned.stderr}, {planned.stdout}")
    place.tokenize("char")
    expect_mistake(2, ["train-lm", "--tokens", place.tokens, *small("--document-mask")], r"--document-mask: '.*t\.h5' has no end token between documents")


def contexts(_):
    """--context-axis: losses of one rank, with documents, a goldfish loss and dropout, after a resume and in evaluations; what cannot be cut is refused."""
    place = place_of_documents()
    weights = place.file("w.h5")
    model = ["--arch", "llama", "--kv-heads", "2", "--dropout", "0.1", "--accumulate", "2", "--global-batch", "8", "--document-mask",
             "--goldfish", "3,4", "--eval-every", "10", "--lr", "0.01", "--save-weights", weights, "--force"]
    whole = place.train(1, *model)
    loss = whole["eval"][-1]["val_loss"]
    for ranks, grid, axis, exchange in ((2, "2x1x1x1", "2", "key-values"), (2, "2x1x1x1", "2", "heads"), (4, "4x1x1x1", "4", "auto"),
                                        (4, "2x2x1x1", "2", "auto"), (4, "4x1x1x1", "2", "heads"), (4, "auto", "2", "auto")):
        found = place.train(ranks, *model, "--grid", grid, "--context-axis", axis, "--context-exchange", exchange)
        require_equal(losses_of(found), losses_of(whole), f"losses on {grid} with {axis} ranks per sequence that exchange {exchange}")
        check(abs(found["eval"][-1]["val_loss"] - loss) <= 1e-10, f"validation loss on {grid}")
        made = found["run"][0]["context_exchange"]
        check(made == exchange if exchange != "auto" else made == "key-values" or grid == "auto", f"{exchange} on {grid}: {made}")
        check(f"context   {axis} ranks exchange {made}\n" in found["output"], found["output"])
    axis = ["--grid", "2x1x1x1", "--context-axis", "2", "--context-exchange", "heads"]
    for exchange in ("key-values", "heads", "auto"):
        found = val_loss(place, weights, "--document-mask", *axis[:-1], exchange, ranks=2)
        check(abs(found - loss) <= 1e-10, f"the loss of evaluate-lm with an exchange of {exchange}")
    goes_on(place, [*model, "--context-axis", "1"], whole, "checkpoints")
    folder = ["--checkpoint", place.file("shared"), "--checkpoint-every", "7"]
    place.train(2, *model, *axis, *folder)
    for name in ("checkpoint-000020.h5", "latest"):
        os.remove(os.path.join(place.file("shared"), name))
    require_equal(losses_of(place.train(1, *model, *folder, "--resume", "auto")), losses_of(whole), "losses after a resume")
    planned = json.loads(expect_success(1, ["plan-lm", "--vocabulary", "300", "--ranks", "4", "--json", "--top", "1", "--context-axis", "4", "--sequence", "32768"]).stdout)
    check(planned["context_axis"] == 4 and planned["grid"] == "4x1x1x1", f"{planned}")
    train = ["train-lm", "--tokens", place.tokens]
    for ranks, words, pattern in (
            (2, small("--grid", "1x2x1x1", "--context-axis", "2"), r"--context-axis 2 does not divide the 1 data groups of --grid 1x2x1x1; take a divisor"),
            (2, small("--context-axis", "3"), r"--context-axis 3 does not divide the 2 ranks of the job"),
            (2, small("--grid", "2x1x1x1", "--context-axis", "2", "--sequence", "18"), r"cuts each sequence in 4 equal chunks, which 18 tokens cannot be: take --sequence 16 or 20"),
            (2, small("--context-axis", "2", "--experts", "2", "--capacity", "1.5"), r"use --capacity-group rank, or --capacity none"),
            (2, small("--context-exchange", "heads"), r"--context-exchange heads is for --context-axis: give that, too"),
            (4, small("--grid", "4x1x1x1", "--context-axis", "4", "--context-exchange", "heads", "--kv-heads", "2"),
             r"the 2 heads of keys and values are no multiple of --context-axis 4 times the 1 ranks along x of --grid 4x1x1x1: take key-values, or auto"),
            (2, small("--context-axis", "2", "--context-exchange", "ring"), r"--context-exchange"),
            (1, small("--context-axis", "0"), r"--context-axis")):
        expect_mistake(ranks, [*train, *words], pattern)
    evaluate = ["evaluate-lm", "--weights", weights, *axis]
    expect_mistake(2, [*evaluate, "--tokens", place.tokens, "--stride", "4"], r"--context-axis is for the loss over sequences of --tokens: leave it out with --ids")


def exchanges(_):
    """Steps on an emulated machine where only calls take time last as long as predicted with each exchange, within 10 %, and auto takes the faster one."""
    place = Place()
    machine = place.file("machine.toml")
    with open(machine, "w", encoding="utf-8") as file:
        file.write(MACHINE.format(ranks_per_node=2, factor=0).replace("= 1e-3", "= 1e-6").replace("= 5e-4", "= 1e-6"))
    best = set()
    for axis, kv_heads in (("2", "8"), ("4", "8"), ("4", "4"), ("2", "2")):
        words = ["--hidden", "64", "--heads", "8", "--kv-heads", kv_heads, "--sequence", "64", "--global-batch", "4", "--compute-dtype", "fp32",
                 "--eval-every", "0", "--grid", "4x1x1x1", "--context-axis", axis, "--context-exchange"]
        seconds = {}
        for exchange in ("key-values", "heads", "auto"):
            done = expect_success(1, ["plan-lm", "--tokens", place.tokens, "--json", "--machine", machine, *small(*words, exchange)])
            planned = json.loads(done.stdout)
            seconds[exchange] = planned["seconds"]
            found = place.train(4, *words, exchange, *(["--machine", machine] if exchange == "auto" else []), steps=6, ORTHANT_EMULATE=machine)
            emulated = found["done"][0]["median_step_seconds"]
            print(f"{axis} ranks, {kv_heads} key-value heads, {exchange}: {planned['seconds']:.6f} s predicted, {emulated:.6f} s emulated")
            check(abs(emulated - planned["seconds"]) <= 0.1 * planned["seconds"], f"{emulated} s with {exchange}, not {planned['seconds']}")
            check(found["run"][0]["context_exchange"] == planned["context_exchange"], f"{exchange}: {planned}")
        best.add(planned["context_exchange"])
        check(seconds["auto"] == min(seconds.values()) == seconds[planned["context_exchange"]], f"{seconds}, but auto takes {planned}")
    check(best == {"key-values", "heads"}, f"always {best}")


sys.exit(run_part(losses, documents, contexts, exchanges, frozen, schedules, adapters))
