#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""F1 scores, the majority, class weights, the best epoch by --monitor and patience: scores.py PROGRAM FOLDER_OF_KARATE

Scores are computed here from the predictions and the labels, by their definitions; weighted losses and the norms of their
gradients from a GCN in plain Python (plain_gcn.py).
"""

import json
import math
import os
import sys
import tempfile

from plain_gcn import layer_outputs, read_safetensors, softmax, table
from predictions import PLACES, check, flat, import_weights, near, read_npy, weights_of, write_npy
from program import attempt_all, expect_mistake, expect_success, require

KARATE = sys.argv[2]
FEW = ["--layers", "2", "--hidden", "6", "--eval-every", "1", "--compute-dtype", "fp64"]


def events_of(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def f1_of(pairs):
    """Of (label, prediction), 0 or 1 each: F1, and its numerator and denominator."""
    both = sum(label == prediction == 1 for label, prediction in pairs)
    either = sum(label + prediction for label, prediction in pairs)
    return 2 * both / either if either else 0.0, 2 * both, either


def scores_of(labels, predictions, several):
    """macro-F1, micro-F1 and the share of the most frequent answer. Of several classes -1 is unknown."""
    if several:
        columns = [[pair for pair in zip(label, prediction) if pair[0] >= 0] for label, prediction in
                   zip(zip(*labels), zip(*predictions))]
        majority = sum(max(sum(label for label, _ in column), sum(1 - label for label, _ in column)) for column in columns)
        count = sum(map(len, columns))
    else:
        columns = [[(int(label == c), int(prediction == c)) for label, prediction in zip(labels, predictions)]
                   for c in sorted({*labels, *predictions})]
        majority, count = max(labels.count(c) for c in labels), len(labels)
    parts = [f1_of(column) for column in columns]
    return sum(f1 for f1, _, _ in parts) / len(parts), sum(n for _, n, _ in parts) / sum(d for _, _, d in parts), majority / count


def area(pairs):
    """Of (label, score): the share of pairs of a 1 and a 0 in which the 1 has the larger score, ties half; None without such pairs."""
    ones, zeros = ([score for label, score in pairs if label == kind] for kind in (1, 0))
    wins = sum((a > b) + (a == b) / 2 for a in ones for b in zeros)
    return wins / (len(ones) * len(zeros)) if ones and zeros else None


def require_areas(record, parts, labels, scores, several):
    """ROC-AUC, one class against the rest, on the mean of the classes that some have and some have not."""
    for split, rows in parts.items():
        columns = range(len(scores[0]))
        known = [[(labels[v][c] if several else int(labels[v] == c), scores[v][c]) for v in rows if not several or labels[v][c] >= 0]
                 for c in columns]
        areas = [found for found in map(area, known) if found is not None]
        check((f"{split}_roc_auc" in record) == bool(areas), f"ROC-AUC of {split}: {areas}")
        if areas:
            near([record[f"{split}_roc_auc"]], [sum(areas) / len(areas)], f"ROC-AUC of {split}")


def evaluated(ranks, scratch, store, weights, place):
    """The record of an evaluation, what it prints, and the classes."""
    metrics, path = os.path.join(scratch, "m.jsonl"), os.path.join(scratch, "p.npy")
    done = expect_success(ranks, ["evaluate", "--graph", store, "--weights", weights, "--compute-dtype", "fp64", "--grid", place[0],
                                  "--schedule", place[1], "--metrics", metrics, "--predictions", path, "--force"])
    return events_of(metrics)[-1], done.stdout, read_npy(path)[1]


def probabilities(ranks, scratch, store, weights, classes):
    path = os.path.join(scratch, "q.npy")
    expect_success(ranks, ["evaluate", "--graph", store, "--weights", weights, "--compute-dtype", "fp64", "--predictions", path,
                           "--probabilities", "--force"])
    numbers = read_npy(path)[1]
    return [numbers[place:place + classes] for place in range(0, len(numbers), classes)]


def require_scores(record, text, parts, labels, predictions, several):
    for split, rows in parts.items():
        macro, micro, majority = scores_of([labels[v] for v in rows], [predictions[v] for v in rows], several)
        near([record[f"{split}_macro_f1"], record[f"{split}_micro_f1"]], [macro, micro], f"F1 of {split}")
        if not several:
            near([micro], [record[f"{split}_acc"]], "micro-F1 and accuracy")
        if split == "test":
            is_near = abs(record["test_acc"] - majority) <= 0.01
            check(("most frequent answer" in text) == is_near, f"accuracy {record['test_acc']}, majority {majority}: {text}")


def one_class(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        store = os.path.join(scratch, "g.h5")
        expect_success(1, ["partition", "--input", KARATE, "-o", store])
        labels = [row[0] for row in table(KARATE, "raw/node-label.csv", int)]
        parts = {name: [row[0] for row in table(KARATE, f"split/karate/{file}.csv", int)]
                 for name, file in (("train", "train"), ("val", "valid"), ("test", "test"))}
        tensors = weights_of([34, 7, 5, 2])
        for shift in (0, 0.3, -50):  # the last one: all are of one class
            tensors["convs.2.bias"][1] += shift
            weights = import_weights(tensors, scratch)
            for place in PLACES[ranks]:
                record, text, predictions = evaluated(ranks, scratch, store, weights, place)
                require_scores(record, text, parts, labels, predictions, several=False)
                require_areas(record, parts, labels, probabilities(ranks, scratch, store, weights, 2), several=False)


def several_classes(ranks):
    count, classes = 40, 4
    labels = [[((v * v + 3 * j) // 2) % 2 if (v + j) % 7 else -1 for j in range(classes)] for v in range(count)]
    for row in labels:
        row[3] = min(row[3], 0)  # nobody has the last one
    with tempfile.TemporaryDirectory() as scratch:
        graph, store, out = (os.path.join(scratch, name) for name in ("graph", "g.h5", "out"))
        os.mkdir(graph)
        write_npy(os.path.join(graph, "edge_index.npy"), (2, count), "q", [*range(count), *((3 * v + 1) % count for v in range(count))])
        write_npy(os.path.join(graph, "x.npy"), (count, 6), "d", [math.cos(1 + 2 * v + 3 * j) for v in range(count) for j in range(6)])
        write_npy(os.path.join(graph, "labels.npy"), (count, classes), "b", flat(labels))
        for name, begin, end in (("train", 0, 20), ("valid", 20, 30), ("test", 30, 40)):
            write_npy(os.path.join(graph, f"{name}_idx.npy"), (end - begin,), "q", list(range(begin, end)))
        expect_success(1, ["partition", "--input", graph, "-o", store])
        weights = import_weights(weights_of([6, 5, classes]), scratch)
        for place in PLACES[ranks]:
            record, text, found = evaluated(ranks, scratch, store, weights, place)
            predictions = [found[classes * v:classes * (v + 1)] for v in range(count)]
            parts = {"train": range(20), "val": range(20, 30), "test": range(30, 40)}
            require_scores(record, text, parts, labels, predictions, True)
            require_areas(record, parts, labels, probabilities(ranks, scratch, store, weights, classes), True)
        path = os.path.join(scratch, "t.jsonl")
        expect_success(ranks, ["train", "--graph", store, *FEW, "--epochs", "3", "--roc-auc", "--metrics", path,
                               "--save-weights", os.path.join(scratch, "t.h5")])
        record, _, _ = evaluated(ranks, scratch, store, os.path.join(scratch, "t.h5"), PLACES[ranks][0])
        last = events_of(path)[-1]["last"]
        for split in ("train", "val", "test"):
            near([last[f"{split}_roc_auc"]], [record[f"{split}_roc_auc"]], f"ROC-AUC of {split} in training")
        sigmoids = probabilities(ranks, scratch, store, weights, classes)
        for options, smoothing, gamma in (([], 0, 0), (["--loss", "focal", "--label-smoothing", "0.1"], 0.1, 2)):
            expect_success(ranks, ["train", "--graph", store, "--layers", "2", "--hidden", "5", "--dropout", "0", "--compute-dtype", "fp64",
                                   "--epochs", "1", "--init-from", weights, "--class-weights", "balanced", *options, "--metrics", path, "--force"])
            found = next(line["loss"] for line in events_of(path) if line["event"] == "epoch")
            expected = loss_of_several(labels[:20], sigmoids, smoothing, gamma)
            check(abs(found - expected) < 1e-6, f"{options}: a loss of {found}, not {expected}")


def loss_of_several(labels, sigmoids, smoothing, gamma):
    """The focal loss of these rows with balanced weights; classes that do not occur have a weight of 1."""
    counts = [sum(row[j] == 1 for row in labels) for j in range(len(labels[0]))]
    share = sum(counts) / sum(count > 0 for count in counts)
    total = 0
    for row, probabilities_of_row in zip(labels, sigmoids):
        for label, s, count in zip(row, probabilities_of_row, counts):
            t = (1 - smoothing) * label + smoothing / 2
            term = -(t * math.log(s) + (1 - t) * math.log(1 - s)) * (1 - s * t - (1 - s) * (1 - t)) ** gamma
            total += (label >= 0) * (share / count if count else 1) * term
    return total / (len(labels) * len(counts))


def trained_areas(ranks):
    """Areas that a training records are those of its weights, in the last epoch and in the best one, on and off the whole graph."""
    with tempfile.TemporaryDirectory() as scratch:
        def at(name):
            return os.path.join(scratch, name)
        store = at("g.h5")
        expect_success(1, ["partition", "--input", KARATE, "-o", store])
        train = ["train", "--graph", store, *FEW, "--force", "--metrics", at("t.jsonl"), "--save-weights", at("w.h5")]
        names = {f"{split}_roc_auc" for split in ("train", "val", "test")}
        for mode in ([], ["--schedule", "rows", "--prune", "on"],
                     ["--mode", "minibatch", "--batch", "12", "--grid", f"{ranks}x1x1x1" if ranks < 4 else "2x2x1x1"]):
            ended = expect_success(ranks, [*train, *mode, "--epochs", "6", "--roc-auc"])
            lines = events_of(at("t.jsonl"))
            epochs, done = [line for line in lines if line["event"] == "epoch"], lines[-1]
            check(all(names <= set(epoch) for epoch in epochs), f"{mode}: an evaluation without areas")
            require(len([line for line in ended.stdout.splitlines() if line.split()[:1] == ["ROC-AUC"]]) == 2, "does not print them", ended)
            for weights, event, epoch in (("w.h5", "last", epochs[-1]), ("w-best.h5", "best", epochs[done["best_epoch"] - 1])):
                record, _, _ = evaluated(ranks, scratch, store, at(weights), PLACES[ranks][0])
                for name in sorted(names):
                    near([epoch[name], done[event][name]], [record[name]] * 2, f"{mode}, {event}: {name}")
        expect_success(ranks, [*train, "--epochs", "6"])
        check(not any(name in line for line in events_of(at("t.jsonl")) for name in names), "finds areas unasked")
        # A training in two parts keeps those of its best epoch.
        parts = [*train, "--checkpoint", at("c"), "--resume", "auto", "--roc-auc"]
        expect_success(ranks, [*parts, "--epochs", "4"])
        expect_success(ranks, [*parts, "--epochs", "6"])
        found = events_of(at("t.jsonl"))[-1]
        expect_success(ranks, [*train, "--epochs", "6", "--roc-auc"])
        whole = events_of(at("t.jsonl"))[-1]
        near([found["best"][name] for name in sorted(names)], [whole["best"][name] for name in sorted(names)], "areas in two parts")


def class_weights(ranks):
    first_epoch(ranks, ["--class-weights", "balanced"],
                lambda logits, label, is_first: 9 / (2 * (7 if is_first else 2)) * -math.log(softmax(logits)[label]))


def label_smoothing(ranks):
    """PyTorch's definition: the targets are (1 - E) [j = y] + E / C."""
    def loss(logits, label, _):
        return -sum((0.7 * (j == label) + 0.3 / len(logits)) * math.log(p) for j, p in enumerate(softmax(logits)))
    first_epoch(ranks, ["--label-smoothing", "0.3"], loss, [["--schedule", "rows", "--grid", f"1x1x{ranks}x1"]])


def losses_compose(ranks):
    """PyTorch's CrossEntropyLoss(weight, label_smoothing), BCEWithLogitsLoss(weight) and torchvision's sigmoid_focal_loss."""
    def weight(j, label, is_first):
        return 9 / (2 * (7 if (j == label) == is_first else 2))
    def both(logits, label, is_first):
        return -sum(weight(j, label, is_first) * (0.7 * (j == label) + 0.3 / len(logits)) * math.log(p) for j, p in enumerate(softmax(logits)))
    def entry(z, y, gamma):
        s = 1 / (1 + math.exp(-z))
        return -(y * math.log(s) + (1 - y) * math.log(1 - s)) * (1 - (s * y + (1 - s) * (1 - y))) ** gamma
    def binary(logits, label, is_first):
        return sum(weight(j, label, is_first) * entry(z, float(j == label), 0) for j, z in enumerate(logits)) / len(logits)
    def focal(logits, label, _):
        return sum(entry(z, 0.8 * (j == label) + 0.1, 1.5) for j, z in enumerate(logits)) / len(logits)
    first_epoch(ranks, ["--label-smoothing", "0.3", "--class-weights", "balanced"], both)
    first_epoch(ranks, ["--loss", "binary", "--class-weights", "balanced"], binary)
    first_epoch(ranks, ["--loss", "focal", "--focal-gamma", "1.5", "--label-smoothing", "0.2"], focal)


def first_epoch(ranks, options, loss_of, more=()):
    """Loss and norms of the gradients of the first epoch, from central differences; losses of evaluations are plain."""
    features, edges = table(KARATE, "raw/node-feat.csv"), table(KARATE, "raw/edge.csv", int)
    labels = [row[0] for row in table(KARATE, "raw/node-label.csv", int)]
    # 7 training vertices of one class and 2 of the other.
    trained = [v for v in range(34) if labels[v] == labels[0]][:7] + [v for v in range(34) if labels[v] != labels[0]][:2]
    tensors = weights_of([34, 2])
    def loss():
        logits = layer_outputs(features, edges, tensors)[-1]
        return sum(loss_of(logits[v], labels[v], labels[v] == labels[0]) for v in trained) / 9
    def slope(row, column):
        values = []
        for step in (1e-5, -2e-5):
            row[column] += step
            values.append(loss())
        row[column] += 1e-5
        return (values[0] - values[1]) / 2e-5
    slopes = {name: math.sqrt(sum(slope(row, column) ** 2 for row in (numbers if isinstance(numbers[0], list) else [numbers])
                                  for column in range(len(row)))) for name, numbers in tensors.items()}
    with tempfile.TemporaryDirectory() as scratch:
        graph, store, metrics = (os.path.join(scratch, name) for name in ("graph", "g.h5", "m.jsonl"))
        os.mkdir(graph)
        write_npy(os.path.join(graph, "edge_index.npy"), (2, len(edges)), "q", [u for u, _ in edges] + [v for _, v in edges])
        write_npy(os.path.join(graph, "x.npy"), (34, 34), "d", flat(features))
        write_npy(os.path.join(graph, "labels.npy"), (34,), "q", labels)
        others = [v for v in range(34) if v not in trained]
        for name, rows in (("train", trained), ("valid", others[:10]), ("test", others[10:])):
            write_npy(os.path.join(graph, f"{name}_idx.npy"), (len(rows),), "q", rows)
        expect_success(1, ["partition", "--input", graph, "-o", store])
        weights = import_weights(tensors, scratch)
        base = ["train", "--graph", store, "--layers", "1", "--dropout", "0", "--epochs", "1", "--init-from", weights,
                "--compute-dtype", "fp64", *options, "--metrics", metrics, "--lr", "1e-9", "--force"]
        logits = layer_outputs(features, edges, tensors)[-1]
        plain = sum(-math.log(softmax(logits[v])[labels[v]]) for v in others[:10]) / 10
        for extra in ([[], ["--schedule", "rows"], ["--mode", "minibatch", "--batch", "34", "--grid", f"1x{ranks}x1x1"],
                       ["--schedule", "rows", "--prune", "on"], *more]):
            expect_success(ranks, base + extra)
            epoch = next(line for line in events_of(metrics) if line["event"] == "epoch")
            near([epoch["loss"]], [loss()], f"loss {extra}")
            check(abs(epoch["val_loss"] - plain) < 1e-6, f"loss of the evaluation: {epoch['val_loss']}, not {plain}")
            expected = [slopes["convs.0.lin.weight"], slopes["convs.0.bias"]]
            check(max(abs(a - b) for a, b in zip(epoch["grad_norms"], expected)) < 1e-6, f"norms {epoch['grad_norms']}, not {expected}")


def followed(monitor, accuracies, losses, patience):
    """The best epoch, and the one after which patience ends, or the last."""
    best, since, most, least = 0, 0, -math.inf, math.inf
    for epoch, (accuracy, loss) in enumerate(zip(accuracies, losses), 1):
        gains = {"accuracy": [accuracy > most], "loss": [loss < least], "both": [accuracy >= most, loss <= least]}[monitor]
        best = epoch if all(gains) else best
        since = 0 if any(gains) else since + 1
        most, least = max(most, accuracy), min(least, loss)
        if since == patience:
            return best, epoch
    return best, len(losses)


def best_epoch(ranks):
    """w-best.h5 has the weights of the best epoch by --monitor; --patience stops where it says."""
    with tempfile.TemporaryDirectory() as scratch:
        def at(name):
            return os.path.join(scratch, name)

        def scores_in(name):
            epochs = [line for line in events_of(at(name)) if line["event"] == "epoch"]
            return [line["val_acc"] for line in epochs], [line["val_loss"] for line in epochs]
        store = at("g.h5")
        expect_success(1, ["partition", "--input", KARATE, "-o", store])
        train = ["train", "--graph", store, *FEW, "--lr", "0.05", "--epochs", "30"]
        for mode in ([], ["--mode", "minibatch", "--batch", "12", "--grid", f"1x{ranks}x1x1"]):
            name = f"w{len(mode)}"
            expect_success(ranks, [*train, *mode, "--save-weights", at(name + ".h5"), "--save-best", at(name + "b.h5"), "--metrics", at(name)])
            check(not os.path.exists(at(name + "-best.h5")), "writes the best twice")
            done = events_of(at(name))[-1]
            accuracies, losses = scores_in(name)
            check(done["best_epoch"] == 1 + accuracies.index(max(accuracies)), f"best epoch {done['best_epoch']} of {accuracies}")
            for weights, event in ((name + ".h5", "last"), (name + "b.h5", "best")):
                record, _, _ = evaluated(ranks, scratch, store, at(weights), PLACES[ranks][0])
                near([record[key] for key in done[event]], list(done[event].values()), f"{weights}: scores")
            # Each number of evaluations without gain: where that comes first.
            for monitor, patience in (("accuracy", 1), ("accuracy", 3), ("loss", 1), ("both", 1)):
                best, stop = followed(monitor, accuracies, losses, patience)
                check(stop < 30, f"does not lose patience by {monitor}: {accuracies}, {losses}")
                saved = f"{name}{monitor}{patience}"
                ended = expect_success(ranks, [*train, *mode, "--monitor", monitor, "--patience", str(patience), "--save-weights", at(saved + ".h5"),
                                               "--metrics", at("p.jsonl"), "--force"])
                found = scores_in("p.jsonl")
                require(found[0] == accuracies[:stop], f"not {stop} epochs", ended)
                near(found[1], losses[:stop], f"losses by {monitor}")
                done = events_of(at("p.jsonl"))[-1]
                require((done.get("stopped_early"), done["best_epoch"]) == (True, best), f"by {monitor}, not {best}: {done}", ended)
                what = {"accuracy": "accuracy was", "loss": "loss was", "both": "accuracy and loss were"}[monitor]
                require(f"stopped after epoch {stop}: the validation {what} not better in {patience} " in ended.stdout, "does not say so", ended)
                require(f"best (epoch {best})" in ended.stdout, "has another best epoch", ended)
                record, _, _ = evaluated(ranks, scratch, store, at(saved + "-best.h5"), PLACES[ranks][0])
                near([record["val_acc"], record["val_loss"]], [accuracies[best - 1], losses[best - 1]], f"{saved}: scores")


def two_parts(ranks):
    """A training that goes on from a checkpoint ends where it would have ended, with the same best weights."""
    with tempfile.TemporaryDirectory() as scratch:
        def at(name):
            return os.path.join(scratch, name)

        def epochs_of(name):
            return [line for line in events_of(at(name)) if line["event"] == "epoch"]
        store = at("g.h5")
        expect_success(1, ["partition", "--input", KARATE, "-o", store])
        for monitor, patience, until in (("accuracy", "3", "2"), ("both", "1", "9")):
            train = ["train", "--graph", store, *FEW, "--lr", "0.05", "--epochs", "30", "--monitor", monitor, "--patience", patience, "--force"]
            parts = [*train, "--checkpoint", at(monitor), "--metrics", at(monitor + ".jsonl"), "--resume", "auto", "--save-best", at("parts.h5")]
            expect_success(ranks, [word if word != "30" else until for word in parts])
            expect_mistake(1, [word if word != monitor else "loss" for word in parts], f"its --monitor is {monitor}, here it is loss")
            expect_success(1, parts)
            whole = expect_success(ranks, [*train, "--metrics", at("whole.jsonl"), "--save-best", at("whole.h5")])
            near([line["loss"] for line in epochs_of(monitor + ".jsonl")], [line["loss"] for line in epochs_of("whole.jsonl")], "losses in two parts")
            check(len(epochs_of("whole.jsonl")) > int(until), f"ends before the checkpoint: {len(epochs_of('whole.jsonl'))}")
            ends = [events_of(at(name))[-1]["best_epoch"] for name in (monitor + ".jsonl", "whole.jsonl")]
            check(ends[0] == ends[1], f"best epochs {ends}")
            tensors = []
            for name in ("parts.h5", "whole.h5"):
                expect_success(1, ["export-weights", at(name), "-o", at("t.safetensors"), "--force"])
                tensors.append(read_safetensors(at("t.safetensors"))[0])
            for name, numbers in tensors[0].items():
                pair = (numbers, tensors[1][name]) if not isinstance(numbers, list) else (flat(numbers), flat(tensors[1][name]))
                near(list(pair[0]), list(pair[1]), f"best {name}")
            require("stopped after epoch" in whole.stdout, "does not say why it stopped", whole)


def mistakes(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "b.h5")
        few = ["train", "--dataset", "karate", "--epochs", "1", "--layers", "1"]
        no_valid = ["train", "--dataset", "ring:vertices=50,features=4,classes=2,train=0.5,valid=0,test=0.5", "--epochs", "1", "--layers", "1"]
        for arguments, pattern in (
                (few + ["--eval-every", "0", "--save-best", path], r"--save-best goes by evaluations"),
                (few + ["--eval-every", "0", "--patience", "2"], r"--patience goes by evaluations"),
                (few + ["--eval-every", "0", "--monitor", "loss"], r"--monitor compares evaluations, and --eval-every 0 has none"),
                (few + ["--monitor", "val_loss"], r"--monitor: 'val_loss' is none of accuracy, loss, both"),
                (no_valid + ["--patience", "2", "--monitor", "loss"], r"--patience goes by the loss of validation vertices"),
                (no_valid + ["--patience", "2", "--monitor", "both"], r"--patience goes by the accuracy and loss of validation vertices"),
                (no_valid + ["--save-best", path], r"--save-best goes by the accuracy of validation vertices"),
                (no_valid + ["--patience", "2"], r"--patience goes by the accuracy of validation vertices"),
                (few + ["--save-best", path, "--save-weights", path], r"both write"),
                (few + ["--class-weights", "even"], r"'even' is none of none, balanced"),
                (few + ["--label-smoothing", "1"], r"--label-smoothing"),
                (few + ["--label-smoothing", "-0.1"], r"--label-smoothing"),
                (few + ["--focal-gamma", "1"], r"--focal-gamma is for --loss focal"),
                (few + ["--loss", "hinge"], r"'hinge' is none of auto, cross-entropy, binary, focal, mse, mae, huber"),
                (few + ["--patience", "-1"], r"at least 0"),
                (few + ["--eval-every", "0", "--roc-auc"], r"--roc-auc is what evaluations find, and --eval-every 0 has none")):
            expect_mistake(ranks, arguments, pattern)
            check(os.listdir(scratch) == [], f"left {os.listdir(scratch)}")
        expect_success(ranks, no_valid + ["--save-weights", path])
        check(os.listdir(scratch) == ["b.h5"], f"without validation vertices nothing is the best: {os.listdir(scratch)}")


if __name__ == "__main__":
    raise SystemExit(attempt_all([(ranks, (part,)) for ranks in (4, 2, 1) for part in (one_class, several_classes, trained_areas, class_weights, label_smoothing, losses_compose, best_epoch, two_parts)] +
                                 [(1, (mistakes,)), (2, (mistakes,))]))
