#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several splits of a graph, one per column of its masks: splits.py PROGRAM FOLDER_OF_KARATE

A training on split K of a store equals a training on a store of that column alone. Sizes, accuracies, means and deviations are
computed here.
"""

import json
import os
import re
import shutil
import statistics
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from plain_gcn import table  # noqa: E402
from predictions import PLACES, check, events, flat, near, read_npy, write_folder, write_npy  # noqa: E402
from program import attempt_all, expect_mistake, expect_success, require, run  # noqa: E402

KARATE = sys.argv[2]
COUNT, SPLITS = 34, 4
PARTS = ("train", "val", "test")
FEW = ["--layers", "2", "--hidden", "6", "--epochs", "6", "--eval-every", "2", "--compute-dtype", "fp64"]
LABELS = [row[0] for row in table(KARATE, "raw/node-label.csv", int)]
EDGES = table(KARATE, "raw/edge.csv", int)


def part_of(vertex, split):
    """0 train, 1 valid, 2 test, 3 none; another rule per split."""
    return (vertex * vertex * (split + 2) + 5 * vertex + split) % 13 % 4


def column(part, split):
    return [int(part_of(v, split) == part) for v in range(COUNT)]


def write_masks(folder, masks):
    """`masks`: for each part its columns; a number in place of a list of columns is a mask [vertices] of that split."""
    def array(part, given):
        if isinstance(given, int):
            return (COUNT,), "b", column(part, given)
        return (COUNT, len(given)), "b", flat(zip(*(column(part, split) for split in given)))
    return write_folder(folder, EDGES, x=((COUNT, 5), "f", [((7 * v + 3 * j) % 11) / 8 for v in range(COUNT) for j in range(5)]),
                        y=((COUNT,), "q", LABELS), **{f"{name}_mask": array(part, masks[part]) for part, name in enumerate(PARTS)})


def stores(ranks, scratch):
    """A store of all splits, and one per split."""
    folder = write_masks(os.path.join(scratch, "all"), [range(SPLITS)] * 3)
    paths = [os.path.join(scratch, f"{name}.h5") for name in ("all", *range(SPLITS))]
    done = expect_success(ranks, ["partition", "--input", folder, "-o", paths[0]])
    require(re.search(rf"^splits +{SPLITS};", done.stdout, re.M) is not None, "does not count the splits", done)
    for split in range(SPLITS):
        expect_success(1, ["partition", "--input", write_masks(os.path.join(scratch, str(split)), [split] * 3), "-o", paths[1 + split]])
    return paths[0], paths[1:]


def exports(ranks, store, split, back):
    expect_success(ranks, ["export", store, "--split", str(split), "-o", back, "--format", "npy"])
    for part, name in enumerate(("train", "valid", "test")):
        check(sorted(read_npy(os.path.join(back, f"{name}_idx.npy"))[1]) == [v for v in range(COUNT) if part_of(v, split) == part],
              f"exports another {name} of split {split}")
    shutil.rmtree(back)


def one_of_several(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        store, alone = stores(ranks, scratch)
        expect_success(ranks, ["info", store, "--verify"])
        told = expect_success(1, ["info", store])
        metrics, weights, predictions = (os.path.join(scratch, name) for name in ("m.jsonl", "w.h5", "p.npy"))
        for split in range(SPLITS):
            sizes = [sum(column(part, split)) for part in range(3)]
            text = "train {}, valid {}, test {}".format(*sizes)
            require(re.search(rf"^split +npy: {text}$" if split == 0 else rf"^ +{split}  {text}$", told.stdout, re.M) is not None,
                    f"info lacks {text}", told)
            grid, schedule = PLACES[ranks][split % len(PLACES[ranks])]
            place = ["--grid", grid, "--schedule", schedule, "--metrics", metrics]
            given = ["--split", str(split)] if split > 0 else []
            expect_success(ranks, ["train", "--graph", store, *given, *FEW, *place, "--save-weights", weights, "--force"])
            found = events(metrics, "epoch")
            expect_success(ranks, ["train", "--graph", alone[split], *FEW, *place])
            expected = events(metrics, "epoch")
            for key in ("loss", "train_acc", "val_acc", "test_acc"):
                near([epoch[key] for epoch in found if key in epoch], [epoch[key] for epoch in expected if key in epoch], f"{key} of split {split}")
            expect_success(ranks, ["evaluate", "--graph", store, *given, "--weights", weights, "--compute-dtype", "fp64", *place,
                                   "--predictions", predictions, "--force"])
            classes, scores = read_npy(predictions)[1], events(metrics, "evaluate")[0]
            for part, name in enumerate(PARTS):
                rows = [v for v in range(COUNT) if part_of(v, split) == part]
                near([scores[f"{name}_acc"]], [sum(classes[v] == LABELS[v] for v in rows) / len(rows)], f"{name} of split {split}")
            exports(ranks, store, split, os.path.join(scratch, "back"))


def all_in_turn(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        store, alone = stores(ranks, scratch)
        metrics = os.path.join(scratch, "m.jsonl")
        train = ["train", "--graph", store, *FEW, "--metrics", metrics]
        expected = []
        for split in range(SPLITS):
            expect_success(ranks, [*train, "--split", str(split)])
            expected.append(events(metrics, "done")[0])
        done = expect_success(ranks, [*train, "--split", "all"])
        require(f"{SPLITS} splits, mean and deviation" in done.stdout, "has no table of the splits", done)
        with open(metrics, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        check([line["split"] for line in lines if line["event"] == "run"] == list(range(SPLITS)), "runs of other splits")
        ends = [line for line in lines if line["event"] == "done"]
        near([end["loss"] for end in ends], [end["loss"] for end in expected], "losses of all splits")
        spread = events(metrics, "seeds")[0]
        check((spread["num_splits"], spread["num_seeds"]) == (SPLITS, 1), f"counts {spread}")
        for when in ("last", "best"):
            for part, name in (("valid", "val_acc"), ("test", "test_acc")):
                numbers = [end[when][name] for end in expected]
                near([spread[when][part]["mean"], spread[when][part]["deviation"]], [statistics.mean(numbers), statistics.stdev(numbers)],
                     f"{part} of the {when} epoch")
        done = expect_success(ranks, [*train, "--split", "all", "--seeds", "2", "--mode", "minibatch", "--batch", "17"])
        require(f"{SPLITS} splits of 2 seeds, mean and deviation" in done.stdout, "has no table of splits and seeds", done)
        check(len(events(metrics, "done")) == 2 * SPLITS, "other trainings")
        expect_success(ranks, [*train[:2], alone[1], *train[3:], "--split", "all"])  # has one
        check(len(events(metrics, "done")) == 1, "one split is trained once")
        expect_success(ranks, ["plan", "--graph", store, "--mode", "minibatch", "--batch", "17", "--split", "2"])
        expect_success(ranks, ["bench", "epoch", "--graph", store, "--split", "2"])


def a_test_part_of_all(ranks):
    """A mask of [vertices] is a part of every split, as the test part of WikiCS is."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, store = os.path.join(scratch, "g"), os.path.join(scratch, "g.h5")
        write_masks(folder, [range(2), range(2), 0])
        rows = [v for v in range(COUNT) if part_of(v, 0) == 3]
        write_npy(os.path.join(folder, "test_mask.npy"), (COUNT,), "b", [int(v in rows) for v in range(COUNT)])
        for part in (0, 1):  # vertices outside the common test part
            write_npy(os.path.join(folder, f"{PARTS[part]}_mask.npy"), (COUNT, 2), "b",
                      [int(part_of(v, split) == part and v not in rows) for v in range(COUNT) for split in range(2)])
        expect_success(ranks, ["partition", "--input", folder, "-o", store])
        told = expect_success(1, ["info", store]).stdout
        check(told.count(f"test {len(rows)}") == 2, told)


def many(ranks):
    """More splits than are read at once."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, store, count = os.path.join(scratch, "g"), os.path.join(scratch, "g.h5"), 150
        expect_success(ranks, ["partition", "--input", write_masks(folder, [range(count)] * 3), "-o", store])
        told = expect_success(1, ["info", store]).stdout
        check(re.search(r"^     20  train .*\n  and 129 more$", told, re.M) is not None and told.count("  train ") == 20, told)
        for split in (1, 63, 64, 127, 128, 149):
            exports(ranks, store, split, os.path.join(scratch, "back"))


def mistakes(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        store, alone = stores(1, scratch)
        output = os.path.join(scratch, "new.h5")
        def refused(masks, pattern):
            folder = write_masks(os.path.join(scratch, "wrong"), masks)
            expect_mistake(ranks, ["partition", "--input", folder, "-o", output], pattern)
        refused([range(3), range(2), range(3)], r"val_mask\.npy has 2 columns and .*train_mask\.npy has 3: masks of several splits")
        refused([range(3), range(3), range(1)], r"test_mask\.npy has 1 column and .*val_mask\.npy has 3: masks of several splits")
        folder = write_masks(os.path.join(scratch, "overlap"), [range(3)] * 3)
        shared = min(v for v in range(COUNT) if part_of(v, 2) == 0)
        write_npy(os.path.join(folder, "val_mask.npy"), (COUNT, 3), "b", [int(part_of(v, split) == 1 or (v, split) == (shared, 2))
                                                                         for v in range(COUNT) for split in range(3)])
        done = expect_failure(ranks, ["partition", "--input", folder, "-o", output])
        require(re.search(rf"the split 'npy', number 2: vertex {shared} is in train_mask and val_mask; a vertex may be in one part only",
                          done.stderr) is not None, "does not name the parts", done)
        train = ["train", *FEW, "--graph"]
        expect_mistake(ranks, [*train, store, "--split", "4"], r"--split 4: .*all\.h5 has 4 splits, numbers 0 to 3")
        expect_mistake(ranks, [*train, alone[0], "--split", "3"], r"--split 3: .*0\.h5 has one split, 'npy', which is number 0; partition stores several")
        expect_mistake(ranks, [*train, store, "--split", "-1"], "--split")
        expect_mistake(ranks, [*train, store, "--split", "some"], "--split")
        expect_mistake(ranks, ["train", "--dataset", "karate", "--split", "1"], "--dataset makes one split")
        expect_mistake(ranks, [*train, store, "--split", "all", "--save-weights", output], "--save-weights is for one training: .* --split all")
        expect_mistake(ranks, ["train", "--graph", store, "--split", "all", "--eval-every", "0"], "--split all goes by evaluations")
        expect_mistake(ranks, ["plan", "--graph", store, "--split", "all"], "--split all is for train")
        expect_mistake(ranks, ["export", store, "--split", "9", "-o", os.path.join(scratch, "back")], "has 4 splits")
        no_split = os.path.join(scratch, "none.h5")
        for name in PARTS:
            os.remove(os.path.join(folder, f"{name}_mask.npy"))
        expect_success(1, ["partition", "--input", folder, "-o", no_split])
        expect_mistake(ranks, [*train, no_split, "--split", "1"], "has no split")


def expect_failure(ranks, arguments):
    """A mistake that is found behind the first lines of the output."""
    done = run(ranks, arguments)
    require(done.returncode == 2, "is no mistake of status 2", done)
    return done


def another_split_is_another_training(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        store, _ = stores(1, scratch)
        train = ["train", "--graph", store, *FEW, "--checkpoint", os.path.join(scratch, "c")]
        expect_success(ranks, [*train, "--split", "1"])
        expect_success(ranks, [*train, "--split", "1", "--resume", "auto"])
        done = expect_failure(ranks, [*train, "--split", "2", "--resume", "auto"])
        require("--split" in done.stderr, "does not name --split", done)


if __name__ == "__main__":
    jobs = [(ranks, (case,)) for case in (one_of_several, all_in_turn) for ranks in (1, 2, 4)]
    jobs += [(2, (a_test_part_of_all,)), (3, (many,)), (1, (mistakes,)), (3, (mistakes,)), (2, (another_split_is_another_training,))]
    sys.exit(attempt_all(jobs))
