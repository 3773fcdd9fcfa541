#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trainings that are ended and go on: checkpoints.py PROGRAM PART"""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile

from program import Failure, expect_mistake, expect_success

SKIPPED = 77
TRAIN = ["train", "--dataset", "sbm:vertices=200,edges=900,features=12,classes=4", "--layers", "2", "--hidden", "8",
         "--compute-dtype", "fp64", "--eval-every", "2"]
BATCHES = ["--mode", "minibatch", "--batch", "25"]


def check(condition, what):
    if not condition:
        raise Failure(what)


def events_of(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def losses_of(path, event="epoch"):
    return {line["epoch"]: line["loss"] for line in events_of(path) if line["event"] == event}


def checkpoints_in(folder):
    return sorted(name for name in os.listdir(folder) if name.startswith("checkpoint-"))


def require_equal(found, expected, epochs):
    check(sorted(found) == list(epochs), f"epochs {sorted(found)}")
    for epoch in epochs:
        check(abs(found[epoch] - expected[epoch]) <= 1e-10, f"epoch {epoch}: {found[epoch]}, not {expected[epoch]}")


class Place:
    """A folder for one test, with names of its files."""

    def __init__(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = os.path.join(self.scratch.name, "checkpoints")
        self.metrics = os.path.join(self.scratch.name, "metrics.jsonl")
        self.writing = ["--checkpoint", self.folder, "--metrics", self.metrics]

    def file(self, name):
        return os.path.join(self.scratch.name, name)


def whole_run(place, epochs, *arguments, train=TRAIN):
    path = place.file("whole.jsonl")
    if os.path.exists(path):
        os.remove(path)
    expect_success(2, train + ["--epochs", str(epochs), "--metrics", path, *arguments])
    return losses_of(path)


def goes_on():
    """Epochs 1 to 4 on two ranks, then on one, three and two ranks: one gap-free file of metrics."""
    place = Place()
    expected = whole_run(place, 10)
    expect_success(2, TRAIN + place.writing + ["--epochs", "4", "--resume", "auto", "--grid", "1x2x1x1"])
    text = expect_success(1, TRAIN + place.writing + ["--epochs", "6", "--resume", "auto", "--schedule", "rows"]).stderr
    check("goes on from" in text and "at epoch 5" in text and "epoch 1/" not in text, f"where does it go on? {text}")
    expect_success(3, TRAIN + place.writing + ["--epochs", "8", "--resume", os.path.join(place.folder, "latest")])
    expect_success(2, TRAIN + place.writing + ["--epochs", "10", "--resume", "auto", "--checkpoint-every", "1",
                                               "--checkpoint-async", "off", "--checkpoint-keep", "3"])
    events = events_of(place.metrics)
    check([line["epoch"] for line in events if line["event"] == "epoch"] == list(range(1, 11)), f"{events}")
    require_equal(losses_of(place.metrics), expected, range(1, 11))
    runs = [line for line in events if line["event"] == "run"]
    check(len({line["training"] for line in runs}) == 1, "the training changed its name")
    check([line.get("resumed", {}).get("epoch") for line in runs] == [None, 5, 7, 9], f"resumed at {runs}")
    check(checkpoints_in(place.folder) == [f"checkpoint-{step:06}.h5" for step in (8, 9, 10)], f"{os.listdir(place.folder)}")
    done = [line for line in events if line["event"] == "done"][-1]
    # Nothing is left to do, and the result is that of the run before.
    expect_success(2, TRAIN + place.writing + ["--epochs", "10", "--resume", "auto"])
    again = events_of(place.metrics)[-1]
    check((again["loss"], again["last"], again["best_epoch"]) == (done["loss"], done["last"], done["best_epoch"]),
          f"{again}, not {done}")


def cut_metrics():
    """What was written behind the checkpoint, and a line that is not complete, is taken out before it comes again."""
    place = Place()
    other = '{"event":"run","command":"other"}\n{"event":"epoch","epoch":7,"loss":1}\n'
    with open(place.metrics, "w", encoding="utf-8") as file:
        file.write(other)
    expected = whole_run(place, 7)
    text = expect_success(1, TRAIN + place.writing + ["--epochs", "5", "--checkpoint-every", "1", "--checkpoint-keep", "9", "--resume", "auto"]).stderr
    check(f"it is '{place.metrics}.1' from now on" in text, text)
    with open(place.metrics + ".1", encoding="utf-8") as file:
        check(file.read() == other, "another run lost its lines")
    for name in checkpoints_in(place.folder)[3:]:  # as if it had been killed in epoch 5, within a line
        os.remove(os.path.join(place.folder, name))
    with open(place.metrics, "a", encoding="utf-8") as file:
        file.write('{"event":"epo')
    expect_success(1, TRAIN + place.writing + ["--epochs", "7", "--resume", "auto"])
    with open(place.metrics, encoding="utf-8") as file:
        lines = file.read().splitlines()
    epochs = [json.loads(line) for line in lines if '"event":"epoch"' in line]
    check([line["epoch"] for line in epochs] == list(range(1, 8)), f"{lines}")
    require_equal({line["epoch"]: line["loss"] for line in epochs}, expected, range(1, 8))
    check(sum('"event":"done"' in line for line in lines) == 1, f"a stale end is left: {lines}")


def longer():
    """A training of 20 epochs that goes on to 40 is one of 40 epochs: to the bit on its grid, and to rounding on another one."""
    steps_per_epoch = 8  # of batches
    plateau = ["--lr-schedule", "plateau", "--lr-patience", "0", "--lr-factor", "0.5", "--lr", "0.1"]
    for mode, steps, schedule in (([], 1, []), (BATCHES, steps_per_epoch, []), ([], 1, plateau)):
        place = Place()
        train = TRAIN[:-1] + ["7", *mode, *schedule]  # evaluations: 7, 14, 20 of 20 epochs, and 7, 14, 21, .. of 40
        expected = whole_run(place, 40, "--grid", "1x2x1x1", train=train)
        for ranks, more in ((2, []), (2, ["--resume-override", "length"]), (1, [])):
            shutil.rmtree(place.folder, ignore_errors=True)
            expect_success(2, train + place.writing + ["--grid", "1x2x1x1", "--epochs", "20", "--force"])
            goes = ["--grid", f"1x{ranks}x1x1", "--epochs", "40", "--resume", "auto", *more]
            text = expect_success(ranks, train + place.writing + goes).stderr
            check("--epochs is 40 here and was 20: the learning rate does not depend on it" in text, text)
            found = losses_of(place.metrics)
            require_equal(found, expected, range(1, 41))
            check(ranks == 1 or found == expected, f"not to the bit: {found}, {expected}")
            check(checkpoints_in(place.folder) == [f"checkpoint-{n * steps:06}.h5" for n in (20, 40)], f"{os.listdir(place.folder)}")

    # An evaluation that only the end brings is none for patience: nothing gains here, so 20 and 30 are the two that end it.
    patient = TRAIN[:-1] + ["10", "--lr", "1e-12", "--patience", "2"]
    place = Place()
    whole = place.file("patient.jsonl")
    expect_success(1, patient + ["--epochs", "100", "--metrics", whole])
    check(sorted(losses_of(whole)) == list(range(1, 31)), f"straight: {sorted(losses_of(whole))}")
    expect_success(1, patient + place.writing + ["--epochs", "15"])
    expect_success(1, patient + place.writing + ["--epochs", "100", "--resume", "auto"])
    check(losses_of(place.metrics) == losses_of(whole), f"in two parts: {sorted(losses_of(place.metrics))}")

    for mode, steps in (([], 1), (BATCHES, steps_per_epoch)):
        place = Place()
        cosine = TRAIN + place.writing + [*mode, "--lr-schedule", "cosine", "--min-lr", "0.001"]
        expect_success(1, cosine + ["--epochs", "20"])
        auto = cosine + ["--resume", "auto"]
        expect_mistake(2, auto + ["--epochs", "40"], r"its --epochs is 20, here it is 40 \(--resume-override length goes on")
        expect_mistake(1, auto + ["--epochs", "40", "--resume-override", "learning-rate"], r"its --epochs is 20, here it is 40 \(--resume-override length")
        expect_mistake(2, auto + ["--epochs", "19", "--resume-override", "length"],
                       r"has come to epoch 20, and --epochs 19 ends before it: give --epochs 20 or more")
        text = expect_success(1, auto + ["--epochs", "40", "--resume-override", "length"]).stderr
        last, whole = 20 * steps, 40 * steps
        rate = 0.001 + 0.009 * (1 + math.cos(math.pi * last / (whole - 1))) / 2
        check(f"decays over the new length, and it was 0.001 in step {last} and is {rate:.6g} in step {last + 1}" in text, text)
        rates = [line["lr"] for line in events_of(place.metrics) if line["event"] == "epoch"]
        check(len(rates) == 40 and abs(rates[19] - 0.001) < 1e-15 and abs(rates[39] - 0.001) < 1e-15, f"rates {rates}")
        check(steps > 1 or abs(rates[20] - rate) < 1e-15, f"rate {rates[20]}, not {rate}")


def goes_back():
    """From an earlier checkpoint, also of a folder that an earlier version numbered: later ones get other names."""
    place = Place()
    every = TRAIN + place.writing + ["--checkpoint-every", "1", "--checkpoint-keep", "9"]
    expect_success(1, every + ["--epochs", "4"])
    text = expect_success(1, every + ["--epochs", "3", "--resume", os.path.join(place.folder, "checkpoint-000002.h5")]).stderr
    check(text.count(".h5.1'") == 2 and "checkpoint-000004.h5.1'" in text, text)
    check(checkpoints_in(place.folder) == ["checkpoint-000001.h5", "checkpoint-000002.h5", "checkpoint-000003.h5", "checkpoint-000003.h5.1",
                                           "checkpoint-000004.h5.1"], f"{os.listdir(place.folder)}")
    for old, new in ((3, 2), (1, 1)):  # as if checkpoints were counted: 1 of epoch 1, 2 of epoch 3
        os.rename(os.path.join(place.folder, f"checkpoint-{old:06}.h5"), os.path.join(place.folder, f"checkpoint-{new:06}.h5"))
    text = expect_success(1, every + ["--epochs", "6", "--resume", "auto"]).stderr
    check("checkpoint-000002.h5' at epoch 4" in text and ".1'" not in text, text)
    check(checkpoints_in(place.folder)[1:3] + checkpoints_in(place.folder)[-2:] ==
          ["checkpoint-000002.h5", "checkpoint-000003.h5.1", "checkpoint-000005.h5", "checkpoint-000006.h5"], f"{os.listdir(place.folder)}")


def batches():
    """Mini-batches: other data groups, full epochs behind them, and what does not fit."""
    place = Place()
    finish = [*BATCHES, "--accumulate", "2", "--finish-full", "3"]
    expected = whole_run(place, 7, *finish)
    expect_success(2, TRAIN + place.writing + BATCHES + ["--epochs", "2", "--grid", "2x1x1x1"])
    expect_success(2, TRAIN + place.writing + BATCHES + ["--epochs", "4", "--grid", "1x1x2x1", "--accumulate", "2",
                                                         "--resume", "auto"])
    expect_mistake(1, TRAIN + place.writing + BATCHES + ["--resume", "auto"],
                   r"its number of batches per step \(data groups x --accumulate\) is 2, here it is 1")
    expect_mistake(1, TRAIN + place.writing + ["--mode", "minibatch", "--batch", "50", "--accumulate", "2", "--resume", "auto"],
                   r"its --batch is 25, here it is 50")
    expect_success(2, TRAIN + place.writing + ["--epochs", "7", "--resume", "auto"])  # the full graph from here on
    require_equal(losses_of(place.metrics), expected, range(1, 8))


def within_an_epoch():
    """A checkpoint by the clock lies between two steps of an epoch: mini-batches go on there, the full graph does not."""
    place = Place()
    accumulating = [*BATCHES, "--accumulate", "2"]
    expected = whole_run(place, 4, *accumulating)
    expect_success(2, TRAIN + place.writing + accumulating + ["--epochs", "4", "--checkpoint-every", "0.000001min",
                                                              "--checkpoint-keep", "99"])
    steps = {}
    for name in checkpoints_in(place.folder):
        with open(os.path.join(place.folder, name), "rb") as file:
            progress = re.search(rb'"progress":{"epoch":(\d+),"step":(\d+),', file.read())
        steps[tuple(map(int, progress.groups()))] = os.path.join(place.folder, name)
    check(len(steps) == 16 and (5, 0) in steps, f"four epochs of four steps: {sorted(steps)}")
    resume = ["--resume", steps[2, 3], "--metrics", place.metrics]
    expect_mistake(2, TRAIN + resume, r"was written within epoch 2, at step 3 of its mini-batches; go on with --mode minibatch")
    expect_mistake(1, TRAIN + accumulating + ["--epochs", "3", "--finish-full", "2"] + resume, r"that epoch is on the full graph")
    expect_success(2, TRAIN + BATCHES + ["--epochs", "4", "--grid", "2x1x1x1"] + resume)
    require_equal(losses_of(place.metrics), expected, range(1, 5))
    check(not any("done" == line["event"] for line in events_of(place.metrics)[:-1]), "a stale end is left")


def mistakes():
    place = Place()
    few = TRAIN + ["--epochs", "2"]
    expect_success(1, few + place.writing)
    auto = ["--checkpoint", place.folder, "--resume", "auto"]
    expect_mistake(2, few + place.writing, r"--metrics '.*metrics\.jsonl' exists; --force replaces it; or continue the training with --checkpoint DIR --resume auto")
    expect_mistake(2, few + ["--checkpoint", place.folder], r"holds checkpoints; give --resume auto")
    for arguments, pattern in ((["--seed", "1"], r"its --seed is 0, here it is 1"),
                               (["--hidden", "16", "--dropout", "0.25"], r"its --hidden is 8, here it is 16; its --dropout"),
                               (["--clip-norm", "2"], r"its --clip-norm is not given, here it is 2"),
                               (["--norm", "rms"], r"its --norm is none, here it is rms"),
                               (["--optimizer", "sgd"], r"its --optimizer is adam"),
                               (["--compute-dtype", "fp32"], r"--compute-dtype is fp64.*--resume-override precision goes on"),
                               (["--lr", "0.5"], r"its --lr is 0\.01, here it is 0\.5 \(--resume-override learning-rate"),
                               (["--dataset", "sbm:vertices=200,edges=901,features=12,classes=4"], r"number of non-zeros|fingerprint"),
                               (["--dataset", "karate"], r"its number of vertices is 200, here it is 34")):
        changed = [word for word in few]
        for name, value in zip(arguments[::2], arguments[1::2]):
            if name in changed:
                changed[changed.index(name) + 1] = value
            else:
                changed += [name, value]
        expect_mistake(2, changed + auto, pattern)
        expect_mistake(1, changed + ["--resume", os.path.join(place.folder, "latest")], pattern)
    expect_success(2, TRAIN + auto + ["--epochs", "3", "--lr", "0.5", "--resume-override", "learning-rate"])
    store = place.file("karate.h5")
    shutil.copy(os.path.join(place.folder, checkpoints_in(place.folder)[-1]), store)
    expect_mistake(1, few + ["--checkpoint", store], r"cannot make the folder of checkpoints|cannot read the folder")
    expect_mistake(1, few + ["--resume", "auto", "--checkpoint", os.path.join(store, "below")], r"folder of checkpoints")
    with open(place.file("text.h5"), "w", encoding="utf-8") as file:
        file.write("nothing")
    expect_mistake(2, few + ["--resume", place.file("text.h5")], r"not an HDF5 file")


def damaged():
    """The newest checkpoint that is sound is used, and each damaged one is named."""
    place = Place()
    expected = whole_run(place, 6)
    expect_success(2, TRAIN + place.writing + ["--epochs", "4", "--checkpoint-every", "1", "--checkpoint-keep", "4"])
    names = checkpoints_in(place.folder)
    with open(os.path.join(place.folder, names[3]), "r+b") as file:
        file.truncate(1000)
    with open(os.path.join(place.folder, names[2]), "r+b") as file:
        content = file.read()
        file.seek(len(content) // 2)
        file.write(bytes(255 - byte for byte in content[len(content) // 2:len(content) // 2 + 4000]))
    text = expect_success(2, TRAIN + place.writing + ["--epochs", "6", "--resume", "auto"]).stderr
    for name in names[2:]:
        check(any(name in line and "damaged" in line for line in text.splitlines()), f"{name} is not named: {text}")
    check(names[1] in text and "at epoch 3" in text, text)
    check(all(name + ".1" in os.listdir(place.folder) for name in names[2:]), f"the damaged ones are gone: {os.listdir(place.folder)}")
    require_equal(losses_of(place.metrics), expected, range(1, 7))


def mounted(folder, options):
    os.mkdir(folder)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True).returncode != 0:
        print("may not mount a small file system here")
        sys.exit(SKIPPED)


def disks():
    """A disk that is full ends no training; one that cannot be written ends it at the start."""
    place = Place()
    disk = place.file("disk")
    mounted(disk, "size=900k")
    try:
        big = ["train", "--dataset", "karate", "--layers", "3", "--hidden", "128", "--compute-dtype", "fp64", "--eval-every", "0",
               "--checkpoint", os.path.join(disk, "c")]
        for kind in ("on", "off"):
            done = expect_success(2, big + ["--epochs", "12", "--checkpoint-every", "2", "--checkpoint-async", kind])
            warnings = [line for line in done.stderr.splitlines() if "goes on without this checkpoint" in line]
            check(len(warnings) == 1 and ("No space" in warnings[0] or "disk" in warnings[0]), f"warnings: {done.stderr}")
            check(os.listdir(os.path.join(disk, "c")).count("checkpoint-000002.h5") == 1, f"{os.listdir(disk + '/c')}")
            check(not any("partial" in name for name in os.listdir(os.path.join(disk, "c"))), "something is left")
            text = expect_success(1, big + ["--epochs", "3", "--resume", "auto", "--checkpoint-every", "9"]).stderr
            check("at epoch 3" in text, text)
            shutil.rmtree(os.path.join(disk, "c"))
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        expect_mistake(2, big, r"cannot make the folder of checkpoints .*[Rr]ead-only")
    finally:
        subprocess.run(["umount", disk], check=True)


PARTS = {"goes_on": [goes_on, cut_metrics, goes_back], "longer": [longer], "batches": [batches, within_an_epoch], "mistakes": [mistakes], "damaged": [damaged], "disks": [disks]}

if __name__ == "__main__":
    try:
        for part in PARTS[sys.argv[2]]:
            part()
            print(f"ok   {part.__name__}", flush=True)
    except Failure as failure:
        sys.exit(f"FAIL {failure}")
