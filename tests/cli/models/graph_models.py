#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models of graphs and what they multiply by: graph_models.py PROGRAM

One store serves every operator and every model; weights, checkpoints and plans know the model.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from plain_gcn import read_safetensors  # noqa: E402
from program import attempt_all, expect_mistake, expect_success, require  # noqa: E402
from trainings import lines_of, losses  # noqa: E402

GENERATE = ["generate", "--kind", "sbm", "--vertices", "150", "--edges", "700", "--features", "6", "--classes", "3", "--format", "ogb"]
MODEL = ["--hidden", "7", "--compute-dtype", "fp64", "--epochs", "4", "--eval-every", "2"]
MODES = {"pmm3d": ["--schedule", "pmm3d"], "rows": ["--schedule", "rows"], "batches": ["--mode", "minibatch", "--batch", "40"]}
SAGE = ["--model", "sage", "--aggregator"]
GIN = ["--model", "gin"]
SGC, APPNP, GCNII = (["--model", name] for name in ("sgc", "appnp", "gcnii"))
MODELS = {"GraphSAGE (mean)": [*SAGE, "mean"], "GraphSAGE (sum)": [*SAGE, "sum"], "GraphSAGE (max)": [*SAGE, "max"],
          "GraphConv (sum)": ["--model", "graphconv"], "GIN": GIN, "SGC (2 steps)": SGC,
          "APPNP (5 steps)": [*APPNP, "--propagation-steps", "5"], "GCNII": GCNII}


def graph_in(scratch):
    graph = os.path.join(scratch, "g")
    expect_success(1, GENERATE + ["-o", graph])
    return graph


def store_of(scratch, graph, *options):
    store = os.path.join(scratch, "-".join(("g", *options)).replace("--", "") + ".h5")
    expect_success(1, ["partition", "--input", graph, "-o", store, *options])
    return store


def one_store_serves_every_operator(ranks):
    """The losses are those of a store that was made with the operator, to the bit."""
    with tempfile.TemporaryDirectory() as scratch:
        graph = graph_in(scratch)
        store = store_of(scratch, graph)
        seen = set()
        for normalize in ("sym", "row", "none"):
            made = store_of(scratch, graph, "--normalize", normalize)
            for mode in MODES.values():
                chosen = losses(lines_of(ranks, scratch, ["train", "--graph", store, "--normalize", normalize, *MODEL, *mode]))
                baked = losses(lines_of(ranks, scratch, ["train", "--graph", made, *MODEL, *mode]))
                done = expect_success(1, ["info", made])
                require(chosen == baked, f"{normalize}: {chosen}, {baked}", done)
            seen.add(tuple(chosen))
        # Without self loops, and with them in a plain matrix.
        for more in (["--self-loops", "drop"], ["--normalize", "row", "--self-loops", "drop"], ["--normalize", "none", "--self-loops", "add"]):
            seen.add(tuple(losses(lines_of(ranks, scratch, ["train", "--graph", store, *more, *MODEL, *MODES["batches"]]))))
        require(len(seen) == 6, f"{len(seen)} operators have losses of their own, not 6", done)


def weights_know_how_they_propagate(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        store = store_of(scratch, graph_in(scratch))
        for options in ([*SGC, "--propagation-steps", "3"], [*APPNP, "--propagation-steps", "4", "--teleport", "0.3"],
                        [*GCNII, "--layers", "5", "--teleport", "0.2", "--theta", "0.7", "--norm", "rms"]):
            weights = os.path.join(scratch, "w.h5")
            model = MODEL[2:] if options[:2] == SGC else MODEL  # --hidden
            trained = lines_of(ranks, scratch, ["train", "--graph", store, *options, *model, "--save-weights", weights])[-2]
            last = {"sgc": "3", "appnp": "6", "gcnii": "6"}[options[1]]
            for schedule in ("pmm3d", "rows"):
                words = ["evaluate", "--graph", store, "--weights", weights, "--compute-dtype", "fp64", "--schedule", schedule,
                         "--predictions", os.path.join(scratch, "p.npy"), "--embeddings", last]
                found = lines_of(ranks, scratch, words)[-1]
                done = expect_success(1, ["info", weights])
                for score in ("val_loss", "test_loss", "val_acc"):
                    require(abs(found[score] - trained[score]) < 1e-10, f"{options}: {score} {found[score]}, {trained[score]}", done)
            expect_mistake(1, ["evaluate", "--graph", store, "--weights", weights, "--predictions", os.path.join(scratch, "p.npy"),
                               "--embeddings", str(int(last) + 1), "--force"], rf"has layers 0 to {last}")
            other = [{"3": "1", "4": "1", "0.7": "1"}.get(word, word) for word in options]  # steps or theta
            expect_mistake(1, ["train", "--graph", store, *other, *model, "--init-from", weights],
                           r"another architecture: its (propagation_steps|theta)")
            expect_mistake(1, ["export-weights", weights, "-o", os.path.join(scratch, "w.safetensors")],
                           r"export-weights takes those of gcn, sage, graphconv, gin, gat, gatv2, rgcn, rsage and rgat")


def weights_know_their_operator(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        store = store_of(scratch, graph_in(scratch))
        for options in (["--normalize", "row", "--self-loops", "drop"], [*SAGE, "mean"], [*SAGE, "sum", "--norm", "rms", "--residual"], [*SAGE, "max"],
                        ["--model", "graphconv"], ["--activation", "elu"], ["--activation", "gelu", "--residual"], [*GIN, "--norm", "rms"],
                        [*GIN, "--activation", "leaky_relu", "--norm", "rms"], ["--activation", "tanh", "--norm", "rms"]):
            weights, tensors, back = (os.path.join(scratch, name) for name in ("w.h5", "w.safetensors", "back.h5"))
            trained = lines_of(ranks, scratch, ["train", "--graph", store, *options, *MODEL, "--save-weights", weights])[-2]
            words = ["evaluate", "--graph", store, "--weights", weights, "--compute-dtype", "fp64"]
            for schedule in ("pmm3d", "rows"):
                found = lines_of(ranks, scratch, [*words, "--schedule", schedule])[-1]
                done = expect_success(1, ["info", weights])
                for score in ("val_loss", "test_loss", "val_acc"):
                    require(abs(found[score] - trained[score]) < 1e-10, f"{options}: {score} {found[score]}, {trained[score]}", done)
            if options[0] == "--model":
                again = expect_success(ranks, [*words, "--normalize", "sym"])
                require(f"--normalize has no effect: --model {options[1]} has an operator of its own" in again.stderr, "does not say whose operator it is", again)
            expect_success(ranks, ["export-weights", weights, "-o", tensors, "--force"])
            shapes, about = read_safetensors(tensors)
            model = options[1] if options[0] == "--model" else "gcn"
            expected = {"gcn": {"convs.0.lin.weight", "convs.0.bias"},
                        "graphconv": {"convs.0.lin_rel.weight", "convs.0.lin_rel.bias", "convs.0.lin_root.weight"},
                        "sage": {"convs.0.lin_l.weight", "convs.0.lin_l.bias", "convs.0.lin_r.weight"},
                        "gin": {"convs.0.eps", *(f"convs.0.nn.lins.{part}.{leaf}" for part in (0, 1) for leaf in ("weight", "bias"))}}[model]
            require({name for name in shapes if name.startswith("convs.0")} == expected, f"has {sorted(shapes)}", done)
            self_loops = "add" if options[0] == "--activation" else "drop"
            require(about["model"] == model and about["self_loops"] == self_loops, f"says {about}", done)
            expect_success(ranks, ["import-weights", tensors, "-o", back, "--force"])
            same = subprocess.run(["h5diff", weights, back], capture_output=True, text=True, check=False)
            require(same.returncode == 0, f"the way there and back changes: {same.stdout}", done)


def weights_of_powers_are_read(ranks):
    """Of tag, whose weights lie side by side in one matrix, and of attention by dot products."""
    with tempfile.TemporaryDirectory() as scratch:
        store, weights = store_of(scratch, graph_in(scratch)), os.path.join(scratch, "w.h5")
        for options in (["--model", "tag", "--propagation-steps", "2"], ["--model", "tag", "--layers", "1", "--head"], ["--model", "transformer", "--heads", "7"]):
            trained = lines_of(ranks, scratch, ["train", "--graph", store, *options, *MODEL, "--save-weights", weights, "--force"])[-2]
            found = lines_of(ranks, scratch, ["evaluate", "--graph", store, "--weights", weights, "--compute-dtype", "fp64"])[-1]
            done = expect_success(1, ["info", weights])
            require(options[1] in done.stdout, "does not say what it is", done)
            for score in ("val_loss", "test_loss", "val_acc"):
                require(abs(found[score] - trained[score]) < 1e-10, f"{options}: {score} {found[score]}, {trained[score]}", done)


def models_train_in_every_way(ranks):
    """In all modes, or the newer ones each in one; they go on from a checkpoint, and are planned."""
    ways = {"pmm3d": "sgc", "rows": "gcnii", "batches": "appnp"}
    with tempfile.TemporaryDirectory() as scratch:
        store = store_of(scratch, graph_in(scratch))
        for title, model in MODELS.items():
            for name, mode in MODES.items():
                if model[1] not in ("sage", "gin", ways[name]):
                    continue
                size = MODEL[2:] if model == SGC else MODEL  # it has no --hidden
                words = ["train", "--graph", store, *model, *size, *mode]
                words += ["--dropout", "0"] if model[-1] == "max" else []  # what dropout leaves is larger, and maxima find it
                whole = losses(lines_of(ranks, scratch, words))
                folder = ["--checkpoint", os.path.join(scratch, f"{title}-{name}")]
                half = ["2" if word == "4" else word for word in words]  # --epochs
                lines_of(ranks, scratch, [*half, *folder])
                rest = losses(lines_of(ranks, scratch, [*words, *folder, "--resume", "auto"]))
                done = expect_success(1, ["info", store])
                require(len(whole) == 4 and min(whole[1:]) < whole[0], f"does not learn: {whole}", done)
                require(rest == whole, f"goes on as {rest}, not {whole}", done)  # the file has both parts
                expect_mistake(ranks, ["train", "--graph", store, *MODEL, *mode, *folder, "--resume", "auto"], r"its (--model|normalization) is")
            done = expect_success(1, ["plan", "--graph", store, *model, "--ranks", "8"])
            hidden = 0 if model == SGC else 3 if "gin" in model or "gcnii" in model else 2  # of three layers, as train has them
            widths = "-".join(["6", *["128"] * hidden, "3"])
            require(f"A {title} {widths} of 150 vertices" in done.stdout, f"plans no {title}", done)
        done = expect_success(1, ["plan", "--vertices", "1000", "--nonzeros", "9000", "--widths", "16-32-4", "--model", "sage", "--json"])
        require(json.loads(done.stdout.splitlines()[0])["nonzeros"] == 8000, "has self loops", done)
        done = expect_success(ranks, ["bench", "epoch", "--graph", store, *SAGE, "mean", "--hidden", "8", "--epochs", "1", "--stream-mib", "4", "--gemm-size", "64"])
        require('"bench":"epoch"' in done.stdout, "times no epoch", done)


def edges_are_dropped_alike(ranks):
    """In both schedules, on one rank and on several; a training goes on with the edges that it would have had."""
    with tempfile.TemporaryDirectory() as scratch:
        store = store_of(scratch, graph_in(scratch))
        done = expect_success(1, ["info", store])
        for model in (["--model", "gcn"], [*SAGE, "mean"], ["--model", "gcn", "--dropout", "0"]):
            words = ["train", "--graph", store, *model, *MODEL, "--edge-dropout", "0.4"]
            whole = losses(lines_of(1, scratch, [*words, *MODES["pmm3d"]]))
            plain = losses(lines_of(1, scratch, [*words[:-2], *MODES["pmm3d"]]))
            require(all(abs(a - b) > 1e-6 for a, b in zip(whole, plain)), f"drops no edges: {whole}, {plain}", done)
            for name in ("pmm3d", "rows"):
                found = losses(lines_of(ranks, scratch, [*words, *MODES[name]]))
                require(all(abs(a - b) < 1e-10 for a, b in zip(found, whole)), f"{name}: {found}, not {whole}", done)
            batches = losses(lines_of(1, scratch, [*words, *MODES["batches"]]))
            plain = losses(lines_of(1, scratch, [*words[:-2], *MODES["batches"]]))
            require(all(abs(a - b) > 1e-6 for a, b in zip(batches, plain)), f"drops no edges of batches: {batches}, {plain}", done)
            for name in ("pmm3d", "rows"):
                found = losses(lines_of(ranks, scratch, [*words, *MODES["batches"], *MODES[name]]))
                require(all(abs(a - b) < 1e-10 for a, b in zip(found, batches)), f"batches, {name}: {found}, not {batches}", done)
        folder = ["--checkpoint", os.path.join(scratch, "c")]
        lines_of(ranks, scratch, ["2" if word == "4" else word for word in words] + folder)
        rest = losses(lines_of(ranks, scratch, [*words, *folder, "--resume", "auto"]))
        require(len(rest) == 4 and all(abs(a - b) < 1e-10 for a, b in zip(rest, whole)), f"goes on as {rest}, not {whole}", done)
        expect_mistake(ranks, [*words[:-1], "0.5", *folder, "--resume", "auto"], r"its --edge-dropout is 0.4")


def several_seeds_have_a_mean(ranks):
    """Each is the training of its seed, on one graph."""
    with tempfile.TemporaryDirectory() as scratch:
        store = store_of(scratch, graph_in(scratch))
        for mode in MODES.values():
            words = ["train", "--graph", store, *MODEL, *mode]
            lines = lines_of(ranks, scratch, [*words, "--seeds", "3", "--seed", "5"])
            alone = [lines_of(ranks, scratch, [*words, "--seed", seed]) for seed in "567"]
            done = expect_success(1, ["info", store])
            require(losses(lines) == sum(map(losses, alone), []), "has other losses", done)
            found = lines[-1]
            require((found["event"], found["first_seed"], found["num_seeds"]) == ("seeds", 5, 3), f"ends with {found}", done)
            for epoch, split, score in (("last", "test", "test_acc"), ("best", "valid", "val_acc")):
                values = [run[-1][epoch][score] for run in alone]
                expected = {"mean": statistics.mean(values), "deviation": statistics.stdev(values)}
                require(all(abs(found[epoch][split][key] - expected[key]) < 1e-12 for key in expected), f"{epoch}: {found}, {expected}", done)
        words = ["train", "--dataset", "sbm:vertices=80,features=4,classes=3", "--epochs", "2", "--seeds", "2"]
        done = expect_success(ranks, words)
        graphs = [line for line in done.stdout.splitlines() if line.startswith("graph ")]
        require(len(graphs) == 2 and graphs[0] == graphs[1] and "2 seeds, mean and deviation" in done.stdout, "has two graphs", done)
        for more in (["--save-weights", os.path.join(scratch, "w.h5")], ["--save-best", os.path.join(scratch, "w.h5")],
                     ["--checkpoint", os.path.join(scratch, "c")]):
            expect_mistake(ranks, [*words, *more], r"--(save-weights|save-best|checkpoint) is for one training: leave it out with --seeds 2")
        expect_mistake(ranks, [*words, "--eval-every", "0"], r"--seeds 2 goes by evaluations; give --eval-every")
        expect_mistake(ranks, [*words, "--seeds", "0"], r"--seeds: is 0, but must be at least 1")


def presets_are_overridden(ranks):
    """Each is what its flags are, and a flag goes before it."""
    with tempfile.TemporaryDirectory() as scratch:
        store = store_of(scratch, graph_in(scratch))
        words = ["train", "--graph", store, "--epochs", "3", "--compute-dtype", "fp64"]
        flags = ["--model", "appnp", "--layers", "2", "--hidden", "64", "--lr", "0.01", "--weight-decay-first-layer", "0.005",
                 "--feature-norm", "row", "--eval-every", "1"]
        named = lines_of(ranks, scratch, [*words, "--preset", "appnp-cora", "--teleport", "0.2"])
        spelled = lines_of(ranks, scratch, [*words, *flags, "--teleport", "0.2"])
        done = expect_success(1, ["info", store])
        require(losses(named) == losses(spelled), f"{losses(named)}, {losses(spelled)}", done)
        run = named[0]
        require((run["configuration"]["hidden"], run["sources"]["hidden"]) == (64, "preset"), f"records {run}", done)
        require((run["configuration"]["teleport"], run["sources"]["teleport"]) == (0.2, "flag"), f"records {run}", done)
        deep = lines_of(ranks, scratch, [*words, "--preset", "gcnii-cora", "--layers", "3", "--hidden", "8"])
        require(losses(deep)[2] < losses(deep)[0], f"{losses(deep)}", done)
        expect_mistake(ranks, [*words, "--preset", "gcn"], r"'gcn' is none of none, kipf-gcn")
        # What was given stays, and so does a graph without validation vertices.
        done = expect_success(ranks, ["train", "--dataset", "ring:vertices=60,features=4,classes=3,train=0.5,valid=0,test=0.5", "--epochs", "104",
                                      "--preset", "gat-cora", "--hidden", "20"])
        require("--preset gat-cora gives way to the other options: --heads 10 in place of 8" in done.stderr, "does not say what bends", done)
        require(re.search(r"--patience 100 of the preset has no effect: it goes by .* has none\n", done.stderr) and "--patience" not in done.stdout,
                "its patience ends a training without validation vertices", done)


def options_without_meaning_are_reported(ranks):
    """One warning, and the losses of the training without the option."""
    with tempfile.TemporaryDirectory() as scratch:
        batches = ["--mode", "minibatch", "--batch", "20"]
        for words, option, reason in (
                ([], ["--aggregator", "sum"], r"it is for --model sage and graphconv"),
                (["--layers", "1"], ["--activation", "gelu"], r"one layer alone has no hidden layers"),
                (["--layers", "1"], ["--norm", "rms"], r"one layer alone has no hidden layers"),
                (["--layers", "1"], ["--residual"], r"one layer alone has no hidden layers"),
                (["--layers", "1"], ["--hidden", "64"], r"one layer alone has no hidden layers"),
                ([], ["--propagation-steps", "3"], r"it is for --model sgc, appnp and tag"),
                (SGC, ["--teleport", "0.5"], r"it is for --model appnp and gcnii"),
                (SGC, ["--norm", "rms"], r"one layer alone has no hidden layers"),
                ([*SGC, "--head"], ["--residual"], r"one layer alone has no hidden layers"),
                (APPNP, ["--theta", "0.5"], r"it is for --model gcnii"),
                (APPNP, ["--order", "transform"], r"--model appnp always multiplies in the same order"),
                (GCNII, ["--head"], r"--model gcnii always has one"),
                (GCNII, ["--order", "transform"], r"--model gcnii always multiplies in the same order"),
                ([*SAGE, "max"], ["--order", "transform"], r"--model sage always multiplies in the same order"),
                ([*SAGE, "max", *batches], ["--batch-edges", "rescale"], r"no layer multiplies by weights of edges"),
                ([*SAGE, "mean"], ["--normalize", "sym"], r"--model sage has an operator of its own"),
                ([], ["--heads", "2"], r"it is for --model gat, gatv2, transformer and rgat"),
                (["--model", "gat"], ["--schedule", "pmm3d"], r"--model gat needs --schedule rows, which is used instead"),
                (["--model", "gat"], ["--normalize", "row"], r"--model gat has an operator of its own"),
                (["--model", "gat", *batches], ["--batch-edges", "renormalize"], r"no layer multiplies by weights of edges"),
                (GIN, ["--head"], r"--model gin always has one"),
                (GIN, ["--self-loops", "add"], r"--model gin has an operator of its own"),
                (["--schedule", "pmm3d"], ["--gather", "needed"], r"--schedule pmm3d moves whole blocks"),
                (["--schedule", "pmm3d"], ["--prune", "on"], r"vertices can be skipped only in --schedule rows"),
                (batches, ["--prune", "on"], r"it is for steps on the full graph"),
                (["--model", "tag"], ["--prune", "on"], r"a layer of --model tag reads more than the neighbors of its output's vertices"),
                (["--model", "transformer"], ["--prune", "on"], r"--model transformer computes queries for all vertices"),
                (["--norm", "batch"], ["--prune", "on"], r"--norm batch takes means over all vertices"),
        ):
            train = ["train", "--dataset", "karate", "--compute-dtype", "fp64", "--epochs", "2", *words]
            plain = losses(lines_of(ranks, scratch, train))
            done = expect_success(ranks, [*train, *option, "--metrics", os.path.join(scratch, "idle.jsonl"), "--force"])
            said = re.findall(rf"{option[0]} has no effect: {reason}\n", done.stderr)
            require(len(said) == 1, f"{option[0]}: {len(said)} warnings of /{reason}/", done)
            with open(os.path.join(scratch, "idle.jsonl"), encoding="utf-8") as lines:
                found = losses([json.loads(line) for line in lines])
            require(all(abs(a - b) < 1e-10 for a, b in zip(found, plain)) and len(found) == len(plain), f"{words} {option}: {found}, not {plain}", done)


def mistakes(ranks):
    train = ["train", "--dataset", "karate"]
    for words, message in (
            (["--normalize", "rows"], r"'rows' is none of auto, sym, row, none"),
            (["--self-loops", "none"], r"'none' is none of auto, add, keep, drop"),
            (["--normalize", "sym", "--self-loops", "keep"], r"--self-loops keep needs --normalize none"),
            (["--self-loops", "keep"], r"--self-loops keep needs --normalize none"),
            (["--activation", "selu"], r"'selu' is none of relu, elu, gelu, silu, leaky_relu, tanh"),
            (["--model", "appnpp"], r"'appnpp' is none of gcn, sage, graphconv, tag, gin, sgc, appnp, gcnii, gat, gatv2, transformer, rgcn, rsage, rgat; did you mean 'appnp'"),
            ([*APPNP, "--propagation-steps", "0"], r"--propagation-steps: is 0, but must be at least 1"),
            ([*APPNP, "--teleport", "1.5"], r"--teleport: is 1.5, but must be at least 0 and at most 1"),
            ([*GCNII, "--theta", "0"], r"--theta: is 0, but must be more than 0"),
            ([*APPNP, "--residual", "linear"], r"'linear' is none of none, identity, project"),
            ([*APPNP, "--operand-dtype", "bf16"], r"--operand-dtype of 16 bits goes with --model gcn"),
            ([*SAGE, "least"], r"'least' is none of auto, mean, sum, max"),
            ([*SAGE, "mean", "--operand-dtype", "bf16"], r"--operand-dtype of 16 bits goes with --model gcn"),
            (["--edge-dropout", "1"], r"--edge-dropout: is 1, but must be at least 0 and at most 0.999"),
            (["--model", "gat", "--hidden", "9"], r"--heads must divide --hidden: .*9 columns and 8 heads"),
            (["--model", "gat", "--heads", "0"], r"--heads: is 0, but must be at least 1"),
            ([*SAGE, "sum", "--mode", "minibatch", "--batch", "9", "--batch-edges", "renormalize"], r"renormalize needs a normalized graph"),
    ):
        expect_mistake(ranks, [*train, *words], message)
    expect_mistake(ranks, ["plan", "--vertices", "9", "--nonzeros", "20", "--widths", "2-2", "--normalize", "row"],
                   r"--normalize and --self-loops are for a graph; give --graph")
    with tempfile.TemporaryDirectory() as scratch:
        weights = os.path.join(scratch, "w.h5")
        expect_success(1, [*train, *SAGE, "mean", "--epochs", "1", "--save-weights", weights])
        expect_mistake(ranks, [*train, *SAGE, "sum", "--init-from", weights], r"aggregator")
        expect_mistake(ranks, [*train, "--init-from", weights], r"model")
        expect_mistake(ranks, [*train, *SAGE, "mean", "--activation", "elu", "--init-from", weights], r"activation")


def main():
    both = [mistakes, options_without_meaning_are_reported, weights_of_powers_are_read, presets_are_overridden, one_store_serves_every_operator, weights_know_their_operator, weights_know_how_they_propagate, models_train_in_every_way, edges_are_dropped_alike, several_seeds_have_a_mean]
    raise SystemExit(attempt_all([(ranks, (function,)) for ranks in (1, 3) for function in both]))


if __name__ == "__main__":
    main()
