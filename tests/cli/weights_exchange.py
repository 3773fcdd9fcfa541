#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""export-weights and import-weights: weights_exchange.py PROGRAM

The exported file is read here, byte by byte, and a GCN is computed from it in plain Python (plain_gcn.py). Its losses
must be those of `orthant evaluate`.
"""

import json
import math
import os
import re
import struct
import subprocess
import tempfile

from plain_gcn import layer_outputs, read_safetensors, table, write_safetensors
from program import attempt_all, expect_mistake, expect_success, require, run

GENERATE = ["generate", "--kind", "sbm", "--vertices", "60", "--edges", "200", "--features", "5", "--classes", "3",
            "--format", "ogb"]


def floats(*shape, value=0.1):
    count = math.prod(shape)
    return "F32", list(shape), struct.pack(f"<{count}f", *[value] * count)


def losses_in_python(folder, tensors):
    """Cross entropy of a GCN with these weights, mean over each split."""
    features = table(folder, "raw/node-feat.csv")
    labels = [int(row[0]) for row in table(folder, "raw/node-label.csv")]
    rows = layer_outputs(features, table(folder, "raw/edge.csv", int), tensors)[-1]
    result = {}
    for split in ("train", "valid", "test"):
        chosen = [row[0] for row in table(folder, f"split/random/{split}.csv", int)]
        terms = [math.log(sum(map(math.exp, rows[v]))) - rows[v][labels[v]] for v in chosen]
        result[split] = sum(terms) / len(terms)
    return result


def evaluated(store, weights, scratch, *words):
    metrics = os.path.join(scratch, "evaluate.jsonl")
    if os.path.exists(metrics):
        os.remove(metrics)
    expect_success(1, ["evaluate", "--graph", store, "--weights", weights, "--metrics", metrics, *words])
    with open(metrics) as file:
        event = [json.loads(line) for line in file][-1]
    return {"train": event["train_loss"], "valid": event["val_loss"], "test": event["test_loss"]}


def exchanged_weights_are_those_of_pytorch_geometric(ranks, dtype):
    with tempfile.TemporaryDirectory() as scratch:
        graph, store, weights, tensors, back = (os.path.join(scratch, name) for name in
                                                ("g", "g.h5", "w.h5", "w.safetensors", "back.h5"))
        expect_success(1, GENERATE + ["-o", graph])
        expect_success(1, ["partition", "--input", graph, "-o", store])
        expect_success(ranks, ["train", "--graph", store, "--epochs", "20", "--hidden", "7", "--compute-dtype", dtype,
                               "--save-weights", weights])
        done = expect_success(ranks, ["export-weights", weights, "-o", tensors])
        read, about = read_safetensors(tensors)
        shapes = {name: [len(x), len(x[0])] if isinstance(x, list) else [len(x)] for name, x in read.items()}
        require(shapes == {"convs.0.lin.weight": [7, 5], "convs.0.bias": [7], "convs.1.lin.weight": [7, 7],
                           "convs.1.bias": [7], "convs.2.lin.weight": [3, 7], "convs.2.bias": [3]}, f"has {shapes}", done)
        require(about["format"] == "pt" and about["layers"] == "3", f"says {about}", done)

        expected = losses_in_python(graph, read)
        found = evaluated(store, weights, scratch)
        for split, loss in expected.items():
            require(abs(found[split] - loss) < 1e-5 * abs(loss), f"{split}: {found[split]}, Python has {loss}", done)

        done = expect_success(ranks, ["import-weights", tensors, "-o", back])
        same = subprocess.run(["h5diff", weights, back], capture_output=True, text=True, check=False)
        require(same.returncode == 0, f"the way there and back changes: {same.stdout}", done)


def trained(store, weights, metrics, *words):
    """The epochs of a training."""
    expect_success(2, ["train", "--graph", store, "--epochs", "3", "--eval-every", "1", "--hidden", "7", "--compute-dtype", "fp64", "--dropout", "0",
                       "--lr", "0.05", "--save-weights", weights, "--metrics", metrics, "--force", *words])
    with open(metrics) as file:
        return [event for event in map(json.loads, file) if event["event"] == "epoch"]


def skips_come_back(_):
    """Weights of residuals and of jumping knowledge: evaluated and gone on with; residuals with weights are exported, jumps are not."""
    with tempfile.TemporaryDirectory() as scratch:
        path = lambda name: os.path.join(scratch, name)
        expect_success(1, GENERATE + ["-o", path("g")])
        expect_success(1, ["partition", "--input", path("g"), "-o", path("g.h5")])
        for number, words in enumerate((["--model", "gin", "--jump", "max"], ["--model", "gcn", "--jump", "cat"], ["--model", "sage", "--jump", "mean"],
                                        ["--residual", "project"], ["--model", "gin", "--residual", "project", "--jump", "cat"])):
            weights, tensors, back = path(f"{number}.h5"), path(f"{number}.safetensors"), path(f"{number}-back.h5")
            last = trained(path("g.h5"), weights, path(f"{number}.jsonl"), *words)[-1]
            found = evaluated(path("g.h5"), weights, scratch, "--compute-dtype", "fp64")
            first = trained(path("g.h5"), path("next.h5"), path(f"{number}-next.jsonl"), *words, "--init-from", weights)[0]
            done = expect_success(1, ["info", weights])
            parts = f"residual {'project' if 'project' in words else 'no'}, jump {words[-1] if '--jump' in words else 'none'},"
            require(parts in done.stdout, f"info does not say {parts!r}", done)
            require(abs(found["valid"] - last["val_loss"]) < 1e-9, f"{words}: evaluates to {found}, not {last}", done)
            require(abs(first["loss"] - found["train"]) < 1e-9, f"{words}: goes on with {first}, not {found}", done)
            if "--jump" not in words:
                expect_success(1, ["export-weights", weights, "-o", tensors])
                expect_success(1, ["import-weights", tensors, "-o", back])
                require(evaluated(path("g.h5"), back, scratch, "--compute-dtype", "fp64") == found, f"{words}: other losses after the way there and back", done)
                continue
            kind = words[-1]
            expect_mistake(1, ["export-weights", weights, "-o", tensors], rf"has outputs that jump, --jump {kind}, which are not exported so far")
            plain = ["--head" if word == "--jump" else word for word in words if word != kind]
            expect_mistake(1, ["train", "--graph", path("g.h5"), "--hidden", "7", *plain, "--init-from", weights], rf"its jump is {kind}, that of the model none")
            other = "mean" if kind == "max" else "max"
            expect_mistake(1, ["evaluate", "--graph", path("g.h5"), "--weights", weights, "--jump", other], r"--jump")


def weights_of_other_classes_go_on(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        path = lambda name: os.path.join(scratch, name)
        expect_success(1, [*["4" if word == "3" else word for word in GENERATE], "-o", path("g")])
        expect_success(1, ["partition", "--input", path("g"), "-o", path("g.h5")])
        other = ["train", "--graph", path("g.h5"), "--hidden", "7", "--seed", "9"]
        expect_success(ranks, ["train", "--dataset", "sbm:vertices=60,edges=200,features=5,classes=3", "--hidden", "7", "--epochs", "3",
                               "--save-weights", path("old.h5")])
        init = ["--init-from", path("old.h5")]
        done = expect_success(1, ["info", path("old.h5")])
        require("go on with  train --init-from FILE; with other classes --init-skip 'layer2.*'" in done.stdout, "does not say how to go on", done)
        for words, pattern in (([], r"layer2\.weight has shape 7 x 3, but the model needs 7 x 4; .* --init-skip layer2\.weight,layer2\.bias"),
                               (["--init-skip", "head.*"], r"head\.\* matches none of the model's weights: layer0\.weight, layer0\.bias")):
            done = run(ranks, [*other, *init, *words])  # says something of the graph first
            require(done.returncode == 2 and re.search(pattern, done.stderr) is not None, f"does not say {pattern}", done)
        expect_mistake(ranks, ["evaluate", "--graph", path("g.h5"), "--weights", path("old.h5")], r"4 classes; train .* --init-skip 'layer2\.\*'")
        for mode in ([], ["--mode", "minibatch", "--batch", "20"]):
            read = {}
            for name, options in (("new", [*init, "--init-skip", "layer2.*"]), ("each", [*init, "--init-skip", "layer2.weight", "--init-skip", "*2.bias"]),
                                  ("fresh", [])):
                expect_success(ranks, [*other, *mode, *options, "--epochs", "0", "--save-weights", path(name + ".h5"), "--force"])
            for name in ("old", "new", "each", "fresh"):
                done = expect_success(1, ["export-weights", path(name + ".h5"), "-o", path(name + ".safetensors"), "--force"])
                read[name], _ = read_safetensors(path(name + ".safetensors"))
            for name, numbers in read["new"].items():
                kept = not name.startswith("convs.2.")
                require(numbers == read["old" if kept else "fresh"][name], f"{name} is not that of {'the file' if kept else 'a new model'}", done)
            require(read["new"]["convs.0.lin.weight"] != read["fresh"]["convs.0.lin.weight"] and read["each"] == read["new"], "ways to skip", done)
        # What a training began with need not be said again when it goes on.
        trains = [*other, "--epochs", "2", "--checkpoint", path("checkpoints")]
        expect_success(ranks, [*trains, *init, "--init-skip", "layer2.*"])
        expect_success(ranks, [*trains, "--resume", "auto"])


def weights_that_do_not_fit_are_refused(_):
    with tempfile.TemporaryDirectory() as scratch:
        path, output = os.path.join(scratch, "w.safetensors"), os.path.join(scratch, "w.h5")
        first = {"convs.0.lin.weight": floats(4, 3), "convs.0.bias": floats(4)}
        cases = [
            ({"lin.weight": floats(4, 3)}, "'lin.weight' is no parameter of a GCN, of GraphSAGE, of GraphConv or of GIN"),
            ({"convs.x.bias": floats(4)}, "'convs.x.bias' is no parameter"),
            ({}, "there is no convs.0.lin.weight"),
            ({"convs.1.lin.weight": floats(4, 3)}, "there is no convs.0.lin.weight"),
            ({"convs.0.lin.weight": floats(4)}, "is no matrix"),
            ({"convs.0.lin.weight": floats(4, 0)}, "is no matrix"),
            ({**first, "convs.0.bias": floats(4, 1)}, "is no vector"),
            ({**first, "convs.0.bias": floats(3)}, "convs.0.bias has 3 numbers, not 4"),
            ({**first, "convs.1.lin.weight": floats(2, 5), "convs.1.bias": floats(2)},
             "convs.1.lin.weight takes 5 columns, but the part before it gives 4"),
            ({**first, "convs.1.lin.weight": floats(2, 4)}, "convs.1.bias is missing"),
            ({**first, "convs.2.lin.weight": floats(2, 4), "convs.2.bias": floats(2)}, "more layers than the 1"),
            ({"convs.0.lin.weight": ("I64", [1, 1], bytes(8))}, "of the type"),
        ]
        for tensors, message in cases:
            write_safetensors(path, tensors)
            expect_mistake(1, ["import-weights", path, "-o", output], message)
            if os.path.exists(output):
                raise AssertionError(f"{message}: wrote {output}")
        write_safetensors(path, first)
        expect_mistake(1, ["import-weights", path], "-o FILE")
        expect_mistake(1, ["import-weights", "-o", output], "name the file")
        expect_mistake(1, ["import-weights", path, "-o", path], "")
        expect_mistake(1, ["export-weights", path, "-o", output], r"export-weights writes \.safetensors files, and '.*w\.h5' does not end")
        expect_mistake(1, ["export-weights", path, "-o", os.path.join(scratch, "again.safetensors")],
                       r"w\.safetensors is not an HDF5 file; `orthant import-weights` makes weights of it")
        expect_mistake(1, ["export-weights", "-o", output], "name the weights")
        expect_success(1, ["import-weights", path, "-o", output])


def halves_become_single_precision(_):
    with tempfile.TemporaryDirectory() as scratch:
        path, weights, again = (os.path.join(scratch, name) for name in ("w.safetensors", "w.h5", "again.safetensors"))
        write_safetensors(path, {"convs.0.lin.weight": ("F16", [2, 1], struct.pack("<2e", 1.5, -0.25)),
                                 "convs.0.bias": ("BF16", [2], struct.pack("<2H", 0x3F80, 0xC000))})
        done = expect_success(2, ["import-weights", path, "-o", weights])
        expect_success(1, ["export-weights", weights, "-o", again])
        tensors, _ = read_safetensors(again)
        require(tensors == {"convs.0.lin.weight": [(1.5,), (-0.25,)], "convs.0.bias": (1.0, -2.0)}, f"has {tensors}", done)


def main():
    return attempt_all([(1, (exchanged_weights_are_those_of_pytorch_geometric, "fp32")),
                        (3, (exchanged_weights_are_those_of_pytorch_geometric, "fp64")),
                        (2, (skips_come_back,)), (1, (weights_that_do_not_fit_are_refused,)), (2, (halves_become_single_precision,)),
                        *((ranks, (weights_of_other_classes_go_on,)) for ranks in (1, 3))])


if __name__ == "__main__":
    raise SystemExit(main())
