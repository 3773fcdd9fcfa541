#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Experts through the program: expert_runs.py PROGRAM PART

Collectives that are kept, experts that are placed by past loads, what uneven loads and whole processes take, and DeepSeek's shape.
"""

import json
import os
import re
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", *parts) for parts in ([], ["..", "faults"])]
import hdf5  # noqa: E402
from language_models import Place, check, losses_of, require_equal, small  # noqa: E402
from program import PROGRAM, expect_mistake, expect_success, run_part  # noqa: E402

EXPERTS = ["--experts", "8", "--top-k", "2", "--moe-every", "1", "--layers", "3"]


def kept(_):
    """Layers that are computed again without a call: losses to the bit, and the bytes of a training that keeps all activations."""
    place = Place()
    for ranks, grid, axis in ((1, "1x1x1x1", "1"), (2, "2x1x1x1", "2"), (4, "2x2x1x1", "2"), (4, "1x1x2x2", "1")):
        model = [*EXPERTS, "--capacity", "1.2", "--dropout", "0.1", "--grid", grid, "--expert-axis", axis]
        whole = place.train(ranks, *model, steps=6)
        again = place.train(ranks, *model, "--activation-checkpointing", "full", steps=6)
        found = place.train(ranks, *model, "--activation-checkpointing", "full", "--keep-collectives", steps=6)
        for lines in (again, found):
            check(losses_of(lines) == losses_of(whole), f"{grid}: losses {losses_of(lines)}, not {losses_of(whole)}")
        sent = [[line["sent_bytes"] for line in lines["step"]] for lines in (whole, again, found)]
        check(sent[2] == sent[0] and (ranks == 1 or sent[1][0] > sent[0][0]), f"{grid}: bytes {sent}")
    # A checkpoint goes on with it.
    folder = place.file("kept")
    writing = [*model, "--checkpoint", folder, "--checkpoint-every", "3"]
    place.train(4, *writing, steps=6)
    os.remove(os.path.join(folder, "latest"))
    os.remove(os.path.join(folder, "checkpoint-000006.h5"))
    found = place.train(4, *writing, "--activation-checkpointing", "1", "--keep-collectives", "--resume", "auto", steps=6)
    require_equal(losses_of(found), losses_of(whole), "after a resume")
    plan = ["plan-lm", "--vocabulary", "100", "--ranks", "4", "--top", "20", "--json", "--layers", "8", "--experts", "8", "--expert-axis", "2"]
    plan += ["--activation-checkpointing", "full"]
    without, kept_too = ({line["grid"]: line for line in map(json.loads, expect_success(1, [*plan, *more]).stdout.splitlines())}
                         for more in ([], ["--keep-collectives"]))
    check(len(kept_too) > 1 and sorted(without) == sorted(kept_too), f"grids {sorted(without)}, {sorted(kept_too)}")
    for grid, line in kept_too.items():
        check(line["calls"] < without[grid]["calls"] and line["sent_bytes"] < without[grid]["sent_bytes"], f"{grid}: calls {line['calls']}")
        check(line["array_bytes"] > without[grid]["array_bytes"], f"{grid}: {line['array_bytes']} bytes")


def biases(_):
    """--balance bias: biases move by 0.001 a step against the loads in the metrics, on every grid and after a resume; evaluations read them.

    With the balance loss of the sequences, too, which makes the loads of a step more even.
    """
    place = Place()
    weights = place.file("w.h5")
    model = [*EXPERTS, "--balance", "bias", "--global-batch", "8", "--eval-every", "10", "--save-weights", weights, "--force"]
    without = place.train(1, *model)
    model += ["--sequence-balance-loss", "0.2"]
    whole = place.train(1, *model)
    check(whole["step"][-1]["loss"] < whole["step"][0]["loss"] - 0.1, "it does not learn")
    evenness = [sum(layer["entropy"] for layer in lines["step"][-1]["experts"]) for lines in (without, whole)]
    check(evenness[1] > evenness[0] + 0.01, f"the balance loss of the sequences has no effect: {evenness}")

    def biases_of(path):
        with hdf5.File(hdf5.Library(hdf5.library_of(PROGRAM)), path) as file:
            return [list(file.read(f"/parameters/h.{layer}.mlp.router.bias").values) for layer in range(3)]

    expected = [[0.0] * 8 for _ in range(3)]
    for line in whole["step"]:
        for layer, load in enumerate(line["experts"]):
            for e, tokens in enumerate(load["tokens"]):
                mean = sum(load["tokens"]) / 8
                expected[layer][e] += 0.001 * ((tokens < mean) - (tokens > mean))

    def require_biases(what):
        for layer, (found, wanted) in enumerate(zip(biases_of(weights), expected)):
            check(max(abs(one - other) for one, other in zip(found, wanted)) < 1e-12, f"biases of layer {layer}, {what}: {found}, not {wanted}")

    require_biases("on one rank")
    check(any(abs(bias) > 0.0025 for layer in expected for bias in layer), f"biases {expected}")
    for ranks, grid, axis in ((1, "1x1x1x1", "1"), (2, "2x1x1x1", "2"), (2, "1x1x1x2", "1"), (4, "2x2x1x1", "2"), (4, "2x1x1x2", "1"), (4, "1x1x2x2", "1")):
        found = place.train(ranks, *model, "--grid", grid, "--expert-axis", axis)
        require_equal(losses_of(found), losses_of(whole), f"losses on {grid}")
        check([line["experts"] for line in found["step"]] == [line["experts"] for line in whole["step"]], f"loads on {grid}")
        check(abs(found["eval"][-1]["val_loss"] - whole["eval"][-1]["val_loss"]) <= 1e-10, f"validation loss on {grid}")
        require_biases(grid)
    metrics = place.file("e.jsonl")
    expect_success(2, ["evaluate-lm", "--tokens", place.tokens, "--weights", weights, "--compute-dtype", "fp64", "--metrics", metrics])
    with open(metrics, encoding="utf-8") as file:
        check(abs([json.loads(line) for line in file][-1]["val_loss"] - whole["eval"][-1]["val_loss"]) <= 1e-10, "the loss of evaluate-lm")
    expect_mistake(2, ["evaluate-lm", "--tokens", place.tokens, "--weights", weights, "--balance", "loss"], r"--balance loss: .*whose balance is bias")
    folder = place.file("biases")
    writing = [*model, "--checkpoint", folder, "--checkpoint-every", "7"]
    place.train(2, *writing, "--grid", "1x2x1x1")
    for name in os.listdir(folder):  # as if it had stopped behind step 14
        if name in ("checkpoint-000020.h5", "latest"):
            os.remove(os.path.join(folder, name))
    require_equal(losses_of(place.train(4, *writing, "--grid", "2x1x1x2", "--resume", "auto")), losses_of(whole), "after a resume")
    require_biases("after a resume")
    kept = place.train(2, *model, "--grid", "1x1x1x2", "--activation-checkpointing", "full")
    require_equal(losses_of(kept), losses_of(whole), "computed again")
    require_biases("of layers that are computed again")
    train = ["train-lm", "--tokens", place.tokens, "--balance", "bias"]
    expect_mistake(2, train, r"--balance is for layers with experts; give --experts, too")
    expect_mistake(2, [*train, "--experts", "4", "--balance-loss", "0.1"], r"--balance-loss is for --balance loss; leave it out")
    expect_mistake(2, [*train, "--experts", "4", "--z-loss", "0.1"], r"--balance-loss and --z-loss are for --balance loss")
    expect_mistake(2, ["train-lm", "--tokens", place.tokens, "--experts", "4", "--sequence-balance-loss", "0.1"], r"--sequence-balance-loss is for --balance bias")
    expect_mistake(1, ["export-weights", weights, "-o", place.file("hf"), "--format", "hf"], r"no model_type of Hugging Face has this architecture")


def placed(_):
    """Balanced by the metrics of an earlier run: the same losses, the fullest rank no fuller than in order; checkpoints know no placement."""
    place = Place()
    first = place.file("first.jsonl")
    model = [*EXPERTS, "--eval-every", "0"]
    whole = place.train(2, *model, "--grid", "2x1x1x1", "--expert-axis", "2")
    os.rename(place.file("metrics.jsonl"), first)
    balanced = ["--expert-placement", "balanced", "--expert-loads", first]
    for ranks, grid, axis in ((2, "2x1x1x1", "2"), (4, "4x1x1x1", "4"), (4, "2x2x1x1", "2"), (4, "2x1x1x2", "2")):
        found = place.train(ranks, *model, "--grid", grid, "--expert-axis", axis, *balanced)
        for step, loss in losses_of(whole).items():
            check(abs(losses_of(found)[step] - loss) <= 1e-12 * loss, f"{grid}, step {step}: {losses_of(found)[step]}, not {loss}")
        gains = found["run"][0]["expert_placement"]
        check([gain["layer"] for gain in gains] == [0, 1, 2], f"{gains}")
        check(all(1 <= gain["rank_imbalance"] <= gain["rank_imbalance_in_order"] for gain in gains), f"{gains}")
        check(any(gain["rank_imbalance"] < gain["rank_imbalance_in_order"] for gain in gains), f"nothing is gained: {gains}")
        said = re.findall(rf"fullest rank of {axis} by past loads: (\d\.\d+) times the mean in order, (\d\.\d+) as placed", found["output"])
        check([[f"{g['rank_imbalance_in_order']:.3f}", f"{g['rank_imbalance']:.3f}"] for g in gains] == [list(s) for s in said], found["output"])
    # By hand: of each layer, the sums over the steps, and the fuller half of the experts, in order.
    sums = [[sum(line["experts"][layer]["tokens"][e] for line in whole["step"]) for e in range(8)] for layer in range(3)]
    two = place.train(2, *model, "--grid", "2x1x1x1", "--expert-axis", "2", *balanced)["run"][0]["expert_placement"]
    for loads, gain in zip(sums, two, strict=True):
        expected = 2 * max(sum(loads[:4]), sum(loads[4:])) / sum(loads)
        check(abs(gain["rank_imbalance_in_order"] - expected) < 1e-12, f"{gain}, not {expected}")
    # Balanced on two ranks, from one of its checkpoints on balanced on four, from one of those in order on one.
    folder = place.file("checkpoints")
    writing = [*model, "--checkpoint", folder, "--checkpoint-every", "7", "--checkpoint-keep", "9"]
    place.train(2, *writing, "--grid", "2x1x1x1", "--expert-axis", "2", *balanced)
    for name in ("checkpoint-000020.h5", "checkpoint-000014.h5", "latest"):
        os.remove(os.path.join(folder, name))
    place.train(4, *writing, "--grid", "4x1x1x1", "--expert-axis", "4", *balanced, "--resume", "auto")
    for name in ("checkpoint-000020.h5", "latest"):
        os.remove(os.path.join(folder, name))
    found = place.train(1, *writing, "--resume", "auto")
    require_equal(losses_of(found), losses_of(whole), "after resumes onto other placements")


def uneven(_):
    """Memory is predicted for an imbalance, by default for the middle of what is possible, and by the loads of the run at its end."""
    place = Place()
    model = [*EXPERTS, "--grid", "4x1x1x1", "--expert-axis", "4"]

    def predicted(lines):
        return lines["done"][0]["predicted_memory_bytes"]

    lines = place.train(4, *model, steps=5)
    # Two of eight experts for each token: all choices on one of four ranks are four times its mean.
    said = re.search(r"memory +(\S+ \S+) per rank predicted for an imbalance of experts of 2.5, (\S+ \S+) if they are chosen equally often, "
                     r"(\S+ \S+) if all tokens choose those of one rank", lines["output"])
    check(said, lines["output"])
    check(re.search(r"\(predicted \S+ \S+; \S+ \S+ by the loads of this run\)", lines["output"]), lines["output"])
    even, skewed, worst = (place.train(4, *model, "--expert-imbalance", imbalance, steps=5) for imbalance in ("1", "3", "8"))
    check(predicted(even) < predicted(lines) < predicted(skewed) < predicted(worst), f"{[predicted(x) for x in (even, lines, skewed, worst)]}")
    middle = (predicted(even) + predicted(worst)) / 2
    check(abs(predicted(lines) / middle - 1) < 0.02, f"{predicted(lines)}, not the middle {middle}")
    for text, run in zip(said.groups()[1:], (even, worst), strict=True):
        check(f"memory    {text} per rank" in run["output"], f"{text} is not in {run['output']}")
    by_loads = lines["done"][0]["predicted_memory_bytes_by_loads"]
    check(0.9 * predicted(even) <= by_loads <= predicted(worst), f"{by_loads} by loads, {predicted(even)} if they are even")
    check(losses_of(skewed) == losses_of(lines), "a prediction changes losses")
    check("all tokens choose" not in place.train(1, *EXPERTS, steps=5)["output"], "one rank has all experts")
    plan = ["plan-lm", "--vocabulary", "100", "--ranks", "4", "--expert-axis", "4", "--experts", "8", "--json", "--top", "1"]
    plans = [json.loads(expect_success(1, [*plan, "--expert-imbalance", x]).stdout) for x in ("1", "2", "4", "8", "auto", "2.5")]
    bytes_at = [line["array_bytes"] for line in plans]
    check(bytes_at[0] < bytes_at[1] < bytes_at[2] == bytes_at[3], f"{bytes_at}: four ranks, so at most four times the mean")
    check(bytes_at[4] == bytes_at[5], f"{bytes_at}: memory for the middle of 1 and 4")
    check(plans[4]["seconds"] == plans[0]["seconds"] < plans[5]["seconds"], f"seconds for even loads: {plans}")
    # Steps take no more than the capacity. Evaluations drop nothing, so what they fill is as large as without it.
    capped = json.loads(expect_success(1, [*plan, "--expert-imbalance", "4", "--capacity", "2"]).stdout)["array_bytes"]
    check(bytes_at[1] < capped < bytes_at[2], f"{capped} bytes with a capacity of 2, {bytes_at} without")


def processes(_):
    """The peak of a process beside its predictions, before the run and by its loads: within 10 %, and 2 MiB by which libraries differ
    between processors: they are a quarter of it. Before the run the imbalance of experts on four ranks is told, as loads decide a tenth."""
    place = Place()
    model = ["--layers", "4", "--hidden", "128", "--sequence", "64", "--global-batch", "12", "--compute-dtype", "fp32"]
    experts = ["--experts", "8", "--moe-every", "1"]
    for ranks, arguments in ((1, []), (2, ["--grid", "2x1x1x1"]), (4, ["--grid", "2x1x2x1"]), (1, ["--arch", "llama", "--kv-heads", "2"]),
                             (1, [*experts, "--capacity", "1.25"]), (1, [*experts, "--top-k", "2"]),
                             (2, [*experts, "--top-k", "2", "--grid", "2x1x1x1", "--expert-axis", "2"]),
                             (4, [*experts, "--capacity", "1.25", "--grid", "4x1x1x1", "--expert-axis", "4", "--expert-imbalance", "1.5"])):
        done = place.train(ranks, *model, *arguments, steps=8)["done"][0]
        taken = done["peak_memory_bytes"]
        for name in ["predicted_memory_bytes", *(["predicted_memory_bytes_by_loads"] if "--experts" in arguments else [])]:
            check(abs(done[name] - taken) <= 0.1 * taken + 2 * 2**20, f"{ranks} ranks, {arguments}: {taken} bytes, {name} {done[name]}")


def deepseek(_):
    """DeepSeekMoE's shape: its numbers, and the small one learns on grids."""
    large = ["plan-lm", "--preset", "deepseek-moe-16b", "--vocabulary", "102400", "--ranks", "64", "--activation-checkpointing", "full",
             "--global-batch", "64", "--machine", "perlmutter", "--top", "1", "--json"]
    # Attention and norms of 28 layers, router and 64 + 2 experts of 27 of them, two tables and the last norm: the paper's 16.4B.
    hidden, width, layers = 2048, 1408, 28
    expected = layers * (4 * hidden * hidden + 2 * hidden) + 2 * 102400 * hidden + hidden
    expected += 27 * (hidden * 64 + 66 * 3 * hidden * width) + 3 * hidden * 10944
    found = json.loads(expect_success(1, large).stdout)["checkpoint_bytes"]
    check(abs(found / (12 * expected) - 1) < 1e-5, f"{found / 12} parameters, not {expected}")
    check(abs(expected / 16.4e9 - 1) < 0.005, "not the paper's number")
    place = Place()
    model = ["--preset", "deepseek-cpu", "--hidden", "32", "--feed-forward", "8", "--sequence", "16", "--compute-dtype", "fp64", "--steps", "12",
             "--warmup-steps", "2", "--eval-every", "0"]

    def train(ranks, *grid):
        metrics = place.file("p.jsonl")
        expect_success(ranks, ["train-lm", "--tokens", place.tokens, *model, "--force", "--metrics", metrics, *grid])
        with open(metrics, encoding="utf-8") as file:
            return [line for line in map(json.loads, file) if line["event"] == "step"]

    whole = train(1)
    check(whole[-1]["loss"] < whole[0]["loss"] - 0.1, f"it does not learn: {whole[0]}, {whole[-1]}")
    check(len(whole[0]["experts"]) == 4 and sum(whole[0]["experts"][0]["tokens"]) == 3 * 12 * 16, f"experts {whole[0]['experts']}")
    for one, other in zip(train(4, "--grid", "2x2x1x1", "--expert-axis", "2"), whole, strict=True):
        check(abs(one["loss"] - other["loss"]) <= 1e-10, f"loss {one['loss']}, not {other['loss']}")


def mistakes(_):
    place = Place()
    train = ["train-lm", "--tokens", place.tokens]
    on_two = ["--experts", "8", "--grid", "2x1x1x1", "--expert-axis", "2", "--expert-placement", "balanced"]
    loads, other, broken = place.file("loads.jsonl"), place.file("other.jsonl"), place.file("broken.jsonl")
    step = {"event": "step", "experts": [{"layer": 0, "tokens": [1] * 8}, {"layer": 1, "tokens": [2] * 8}]}
    with open(loads, "w", encoding="utf-8") as file:
        file.write(json.dumps({"event": "run"}) + "\n" + json.dumps(step) + "\n")
    with open(broken, "w", encoding="utf-8") as file:
        file.write(json.dumps(step) + "\n{]\n")
    step["experts"][1]["tokens"] = [1, -1] * 4
    with open(other, "w", encoding="utf-8") as file:
        file.write(json.dumps(step) + "\n")
    odd = {}
    for number in (0.5, 1 << 62, "1", None):
        step["experts"][1]["tokens"] = [number] * 8
        odd[number] = place.file(f"odd-{number}.jsonl")
        with open(odd[number], "w", encoding="utf-8") as file:
            file.write(json.dumps(step) + "\n")
    for ranks, arguments, pattern in (
            (1, train + small("--keep-collectives"), r"--keep-collectives is for layers that are computed again; give --activation-checkpointing"),
            (1, ["plan-lm", "--vocabulary", "9", "--keep-collectives"], r"--keep-collectives is for layers that are computed again"),
            (1, train + small("--experts", "4", "--dense-layers", "2"), r"--dense-layers 2: no layer of 2 would have experts; take 0 to 1"),
            (1, train + small("--experts", "4", "--top-k-scale", "0"), r"--top-k-scale"),
            (1, train + small("--expert-width", "8"), r"--expert-width is for layers with experts; give --experts"),
            (2, train + small("--qk-norm-over", "all"), r"--qk-norm-over all is for --qk-norm: give that, too"),
            (1, train + small("--expert-imbalance", "2"), r"--expert-imbalance is for layers with experts; give --experts"),
            (1, train + small("--experts", "4", "--expert-imbalance", "0.5"), r"--expert-imbalance"),
            (1, ["plan-lm", "--vocabulary", "9", "--experts", "4", "--expert-imbalance", "2"], r"--expert-imbalance .*--expert-axis, which is 1"),
            (1, train + small("--expert-placement", "balanced"), r"--expert-placement is for layers with experts; give --experts"),
            (2, train + small(*on_two), r"--expert-placement balanced needs the loads of an earlier run; .*--expert-loads FILE"),
            (2, train + small("--experts", "8", "--expert-loads", loads), r"--expert-loads is for --expert-placement balanced"),
            (1, train + small("--experts", "8", "--expert-placement", "balanced", "--expert-loads", loads), r"ranks of --expert-axis, which is 1"),
            (2, train + small(*on_two, "--expert-loads", place.file("nowhere.jsonl")), r"nowhere\.jsonl.*no such file"),
            (2, train + small(*on_two, "--expert-loads", broken), r"line 2 is no record of train-lm --metrics"),
            (2, train + small(*on_two, "--expert-loads", other), r"the tokens of layer 1 are not 8 counts"),
            *((2, train + small(*on_two, "--expert-loads", file), r"the tokens of layer 1 are not 8 counts") for file in odd.values()),
            (2, train + small("--experts", "8", "--expert-imbalance", "2"), r"--expert-imbalance .*--expert-axis, which is 1; give a larger one"),
            (2, train + small(*on_two, "--layers", "3", "--expert-loads", loads), r"has no step with tokens of 8 experts in layer 2; give the metrics"),
            (2, train + small("--experts", "4", *on_two[2:], "--expert-loads", loads), r"has no step with tokens of 4 experts in layer 0")):
        expect_mistake(ranks, arguments, pattern)


if __name__ == "__main__":
    raise SystemExit(run_part(biases, kept, placed, uneven, processes, deepseek, mistakes))
