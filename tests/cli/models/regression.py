#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Regression: regression.py PROGRAM FOLDER_OF_KARATE

Losses, norms of gradients, R2 and MAE over six steps of Adam are those of PyTorch 2.8 in fp64 (FIGURES), on all grids and in both
schedules. Targets that are a linear function of the neighbors' features are fitted, on a generated graph and, where ORTHANT_DATA has
it, on Cora.
"""

import math
import os
import re
import shutil
import statistics
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from plain_gcn import table  # noqa: E402
from predictions import PLACES, check, events, flat, import_weights, near, read_csv, read_npy, weights_of, write_folder, write_npy  # noqa: E402
from program import attempt_all, expect_mistake, expect_success, require, run  # noqa: E402

KARATE = sys.argv[2]
COUNT = 34
NAN = math.nan
STEPS = (1, 3, 6)
# MSELoss, L1Loss and HuberLoss of the known targets, for one and for two targets of a vertex. Of steps 1, 3 and 6: the loss and the norms of
# the gradients of both weights; then R2 and MAE of train, valid and test, the last two with the loss, after the update. R2 is the mean over
# the targets.
FIGURES = {
    "mse1": [[1.39681473241, 2.167233508194, 1.707509410235, -0.02210092410605, 0.8434579198681,
               -91.2217478974, 1.645109226223, 2.773581690796, -11.42402613487, 1.274072719949, 1.923945718904],
             [1.032711107043, 1.634081713729, 1.074129218027, -0.2360375501139, 0.8365631651144,
               -186.3956737765, 2.372115404517, 5.635950538467, -24.41284656627, 1.908708342126, 3.935353711076],
             [0.8359103602836, 0.2714578021217, 0.2796940534509, 0.03168980248921, 0.8137059868233,
               -94.79583981688, 1.682060822416, 2.881072994475, -12.21146385451, 1.340007077657, 2.045885854345]],
    "mse2": [[3.458354183546, 3.553461027416, 3.084959443483, -2.007525246375, 1.336074150153,
               -31.52782726219, 1.613225959515, 2.876466971209, -3.423983813282, 0.9087669172582, 1.341740284697],
             [1.762424058183, 1.393604481836, 1.653904191607, -0.7308591021606, 1.052982255998,
               -72.50712543448, 1.483986873995, 2.724411594137, -8.726597375933, 1.437133621413, 2.314411038246],
             [1.017251311374, 0.429376826326, 0.6647882616032, -0.1599640788776, 0.852231895656,
               -73.27833629189, 1.371419301162, 2.249442253989, -9.796196003593, 1.598781638169, 2.803664438641]],
    "mae1": [[0.9377200017268, 0.7998286919811, 0.6188924978497, -0.02210093086463, 0.8434579207205,
               -91.22174510196, 1.64510919982, 1.64510919982, -11.4240257638, 1.274072697676, 1.274072697676],
             [0.8135317427404, 0.1652400308821, 0.1079733307849, -0.5954561830331, 0.9126498906723,
               -241.2068885351, 2.698901713557, 2.698901713557, -31.95444363181, 2.192452471872, 2.192452471872],
             [0.8047633966026, 0.391338555032, 0.2830982459258, 0.04174635396801, 0.7871130607199,
               -136.570115464, 2.027009028389, 2.027009028389, -18.04992468623, 1.638994203945, 1.638994203945]],
    "mae2": [[1.569230039496, 0.8568188878734, 0.7457166161319, -2.007525285996, 1.336074158214,
               -31.52782763233, 1.613225974447, 1.613225974447, -3.423983850426, 0.9087669164289, 0.9087669164289],
             [1.184381675346, 0.405839662125, 0.4624390935358, -0.6754734587064, 1.051824629254,
               -54.58583326072, 1.372382314977, 1.372382314977, -6.546171543814, 1.297362204143, 1.297362204143],
             [0.8607208301896, 0.1032490078977, 0.1171102635781, -0.2901568794334, 0.8401270495134,
               -100.3188262898, 1.506564759244, 1.506564759244, -13.31156599459, 1.789752174562, 1.789752174562]],
    "huber1": [[0.5896430919031, 0.6600798751068, 0.5132381695859, -0.0221009333483, 0.8434579208268,
               -91.22174393156, 1.645109188781, 1.145109188781, -11.42402561156, 1.274072688677, 0.8020919545026],
             [0.460453908134, 0.5442423487977, 0.3705715236442, -0.2826457044679, 0.842887771502,
               -195.010108077, 2.426577748087, 1.926577748087, -25.59661157914, 1.956086373691, 1.456086373691],
             [0.3845558599816, 0.1157052098335, 0.1148049072568, 0.04797361700738, 0.8060632574033,
               -98.72894912817, 1.717397035736, 1.217397035736, -12.73976103505, 1.368671660825, 0.8798784027579]],
    "huber2": [[1.15584791255, 0.7709836076414, 0.6714100548924, -2.007525296412, 1.336074157974,
               -31.52782647256, 1.61322596325, 1.113240264514, -3.423983713864, 0.9087669037203, 0.5499364032548],
             [0.722364710723, 0.4068209760781, 0.4905025458934, -0.7315904297431, 1.04952340446,
               -75.20316354079, 1.494337994203, 1.07159990646, -9.063534844511, 1.458270411331, 0.9590436806887],
             [0.4744477343994, 0.1565576537331, 0.2570873286816, -0.1876664186532, 0.8420509107606,
               -81.16288319844, 1.410831127929, 0.9212283798356, -10.83656398969, 1.659538224215, 1.165542240944]],
}
PLACES = PLACES | {3: [("1x3x1x1", "pmm3d"), ("1x1x3x1", "pmm3d"), ("1x1x1x3", "rows"), ("1x1x3x1", "rows")]}


def features():
    return [((7 * v + 3 * j) % 11) / 8 for v in range(COUNT) for j in range(5)]


def target(v, t):
    return NAN if (v + 3 * t) % 7 == 0 else 1.5 * math.sin(v * (t + 2)) + 0.25 * t


def part_of(v):
    return (2 * v * v + 5 * v) % 13 % 4


def write_targets(folder, count, edges, rows, targets, parts):
    """`targets`: [columns][vertices]."""
    arrays = {} if rows is None else {"x": ((count, len(rows) // count), "d", rows)}
    arrays["y"] = (count,) if len(targets) == 1 else (count, len(targets)), "d", flat(zip(*targets))
    for part, name in enumerate(("train", "val", "test")):
        arrays[f"{name}_mask"] = (count,), "b", [int(parts[v] == part) for v in range(count)]
    return write_folder(folder, edges, **arrays)


def karate(scratch, num_targets, ranks=1, name="g"):
    folder = write_targets(os.path.join(scratch, name), COUNT, table(KARATE, "raw/edge.csv", int), features(),
                          [[target(v, t) for v in range(COUNT)] for t in range(num_targets)], [part_of(v) for v in range(COUNT)])
    store = os.path.join(scratch, f"{name}.h5")
    done = expect_success(ranks, ["partition", "--input", folder, "-o", store])
    require("y.npy has numbers that are not integers: targets of regression" in done.stdout, "has no note", done)
    require(f"{num_targets} target{'s' if num_targets > 1 else ''} per vertex, for regression" in done.stdout, "does not count targets", done)
    return store


def figures_of(epoch):
    parts = [[epoch[f"{part}_r2"], epoch[f"{part}_mae"]] + ([epoch[f"{part}_loss"]] if part != "train" else []) for part in ("train", "val", "test")]
    return [epoch["loss"], *epoch["grad_norms"], *flat(parts)]


def against_pytorch(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        metrics = os.path.join(scratch, "m.jsonl")
        for num_targets in (1, 2):
            store = karate(scratch, num_targets, ranks, f"g{num_targets}")
            expect_success(ranks, ["info", store, "--verify"])
            weights = import_weights(weights_of([5, 7, num_targets]), scratch)
            for loss in ("mse", "mae", "huber"):
                expected = FIGURES[f"{loss}{num_targets}"]
                for grid, schedule in PLACES[ranks]:
                    given = [] if loss == "mse" else ["--loss", loss, "--task", "regression"]
                    done = expect_success(ranks, ["train", "--graph", store, "--init-from", weights, "--layers", "2", "--hidden", "7",
                                                  "--dropout", "0", "--lr", "0.05", "--epochs", "6", "--eval-every", "1", "--compute-dtype", "fp64",
                                                  "--grid", grid, "--schedule", schedule, "--metrics", metrics, *given])
                    require(f"{num_targets} targets of regression" in done.stdout, "does not name the task", done)
                    require(re.search(r"^  R2 +", done.stdout, re.M) is not None, "prints no R2", done)
                    epochs = events(metrics, "epoch")
                    for step, row in zip(STEPS, expected):
                        near(figures_of(epochs[step - 1]), row, f"{loss} of {num_targets} targets, step {step}, {grid} {schedule}")


def every_way(ranks):
    """Mini-batches, pruned steps, 16 bits, checkpoints and other optimizers agree with one rank; predictions with the scores."""
    with tempfile.TemporaryDirectory() as scratch:
        store = karate(scratch, 2)
        metrics, weights, predictions = (os.path.join(scratch, name) for name in ("m.jsonl", "w.h5", "p.npy"))
        base = ["train", "--graph", store, "--layers", "2", "--hidden", "6", "--epochs", "5", "--eval-every", "1", "--metrics", metrics]
        ways = [["--mode", "minibatch", "--batch", "16", "--loss", "huber", "--compute-dtype", "fp64"],
                ["--mode", "minibatch", "--batch", "12", "--accumulate", "2", "--sampler", "degree", "--compute-dtype", "fp64"],
                ["--prune", "on", "--schedule", "rows", "--compute-dtype", "fp64", "--loss", "mae"],
                ["--optimizer", "sgd", "--lr", "0.1", "--compute-dtype", "fp64"],
                ["--model", "sage", "--compute-dtype", "fp64", "--monitor", "mae", "--patience", "4", "--lr", "0.3"]]
        for way in ways:
            found = []
            for count in sorted({1, ranks}):
                expect_success(count, [*base, *way])
                *epochs, done = events(metrics, "epoch", "done")
                found.append([figures_of(epoch) for epoch in epochs])
                if "--monitor" in way:
                    errors = [epoch["val_mae"] for epoch in epochs]
                    best = done["best_epoch"]
                    check(best == 1 + errors.index(min(errors)), f"{best} is the best of {errors}")
                    check(1 < best < len(epochs), f"best epoch {best} of {len(epochs)} shows little")
            near(flat(found[0]), flat(found[-1]), f"{way} on {ranks}")
        found = []
        for grid, accumulated in (("1x1x1x1", "2"), ("2x1x1x1", "1")):
            expect_success(int(grid[0]), [*base, "--mode", "minibatch", "--batch", "8", "--accumulate", accumulated, "--grid", grid,
                                          "--compute-dtype", "fp64"])
            found.append(flat(figures_of(epoch) for epoch in events(metrics, "epoch")))
        near(found[0], found[1], "batches of two data groups")
        found = []
        for words in ([], ["--operand-dtype", "bf16", "--comm-dtype", "bf16"]):
            expect_success(ranks, [*base, *words])
            found.append([epoch["loss"] for epoch in events(metrics, "epoch")])
        check(found[0] != found[1] and all(abs(a - b) <= 1e-2 for a, b in zip(*found)), f"losses in fp32 and bf16: {found}")
        expect_success(ranks, base)
        whole = [figures_of(epoch) for epoch in events(metrics, "epoch")]
        longer = ["--checkpoint", os.path.join(scratch, "c"), "--save-weights", weights, "--force"]
        expect_success(ranks, ["2" if word == "5" else word for word in [*base, *longer]])
        os.remove(metrics)
        expect_success(ranks, [*base, *longer, "--resume", "auto", "--loss", "mse", "--task", "regression", "--monitor", "r2"])  # what is the default
        check([figures_of(epoch) for epoch in events(metrics, "epoch")] == whole[2:], "goes on otherwise after epoch 2")
        done = expect_success(ranks, ["evaluate", "--graph", store, "--weights", weights, "--metrics", metrics, "--force", "--loss", "huber",
                                      "--predictions", predictions, "--compute-dtype", "fp64"])
        require(re.search(r"^  MAE +", done.stdout, re.M) is not None, "prints no MAE", done)
        scores = events(metrics, "evaluate")[0]
        shape, z = read_npy(predictions)
        check(shape == (COUNT, 2), f"predictions of shape {shape}")
        for part, name in enumerate(("train", "val", "test")):
            pairs = [[(target(v, t), z[2 * v + t]) for v in range(COUNT) if part_of(v) == part and target(v, t) == target(v, t)] for t in (0, 1)]
            both = flat(pairs)
            near([scores[f"{name}_mae"]], [sum(abs(a - b) for a, b in both) / len(both)], f"MAE of {name}")
            huber = [r * r / 2 if r <= 1 else r - 0.5 for r in (abs(a - b) for a, b in both)]
            near([scores[f"{name}_loss"]], [sum(huber) / len(huber)], f"loss of {name}")
            r2 = [1 - sum((a - b) ** 2 for a, b in column) / sum((a - sum(y for y, _ in column) / len(column)) ** 2 for a, _ in column) for column in pairs]
            near([scores[f"{name}_r2"]], [sum(r2) / 2], f"R2 of {name}")
        text, binary = os.path.join(scratch, "p.csv"), os.path.join(scratch, "p.h5")
        for path in (text, binary):
            expect_success(ranks, ["evaluate", "--graph", store, "--weights", weights, "--predictions", path, "--compute-dtype", "fp64"])
        names, lines = read_csv(text)
        check(names == ["vertex", "y0", "y1"], f"columns {names}")
        near(flat(line[1:] for line in lines), z, "numbers of the .csv file")
        back, again = os.path.join(scratch, "back"), os.path.join(scratch, "again.h5")
        expect_success(ranks, ["export", store, "-o", back, "--format", "npy"])
        found = read_npy(os.path.join(back, "labels.npy"))[1]
        wanted = [target(v, t) for v in range(COUNT) for t in (0, 1)]
        check(all(a == b or (a != a and b != b) for a, b in zip(found, wanted)), "exports other targets")
        expect_success(ranks, ["partition", "--input", back, "-o", again])


def constant_targets(ranks):
    """R2 of equal targets is 0, whatever the rounding of their mean; targets that differ little beside their mean are not equal."""
    with tempfile.TemporaryDirectory() as scratch:
        metrics, store = os.path.join(scratch, "m.jsonl"), os.path.join(scratch, "g.h5")
        for value in (0.1, 1e9 + 0.1, 0.0):
            columns = [[value if part_of(v) == 1 else target(v, t) for v in range(COUNT)] for t in (0, 1)]
            columns[1] = [1e9 + math.sin(v) if part_of(v) == 1 else y for v, y in enumerate(columns[1])]
            wanted = -0.5e18 / statistics.pvariance(math.sin(v) for v in range(COUNT) if part_of(v) == 1)  # of predictions near 0
            for used in (columns[:1], columns):
                folder = write_targets(os.path.join(scratch, "g"), COUNT, table(KARATE, "raw/edge.csv", int), features(), used,
                                       [part_of(v) for v in range(COUNT)])
                expect_success(ranks, ["partition", "--input", folder, "-o", store, "--force"])
                expect_success(ranks, ["train", "--graph", store, "--layers", "2", "--hidden", "6", "--epochs", "1", "--eval-every", "1",
                                       "--compute-dtype", "fp64", "--metrics", metrics])
                found = events(metrics, "epoch")[0]["val_r2"]
                check(found == 0 if len(used) == 1 else abs(found / wanted - 1) <= 1e-6, f"R2 of {value}: {found}, not {wanted}")


def integers(ranks):
    """Integers are targets if asked for, also in several columns: those that the same numbers in fp64 are."""
    with tempfile.TemporaryDirectory() as scratch:
        for shape, values in (((COUNT,), [v * v % 9 - 1 for v in range(COUNT)]), ((COUNT, 2), [v % 2 for v in range(2 * COUNT)])):
            found = []
            for letter in "qd":
                folder = write_targets(os.path.join(scratch, letter, "g"), COUNT, table(KARATE, "raw/edge.csv", int), features(), [[0.5] * COUNT],
                                       [part_of(v) for v in range(COUNT)])
                write_npy(os.path.join(folder, "y.npy"), shape, letter, [x + 0.0 for x in values] if letter == "d" else values)
                store = os.path.join(scratch, f"{letter}.h5")
                done = expect_success(ranks, ["partition", "--input", folder, "-o", store, "--targets", "--force"])
                require("y.npy has targets of regression\n" in done.stdout, "has no note", done)
                with open(store, "rb") as file:
                    found.append(file.read())
            require(found[0] == found[1], "integers and floating-point numbers are other targets", done)
            done = expect_success(ranks, ["train", "--graph", store, "--layers", "2", "--hidden", "6", "--epochs", "2"])
            require(f"{len(values) // COUNT} targets of regression" in done.stdout, "does not name the task", done)
        os.remove(os.path.join(folder, "y.npy"))
        expect_mistake(ranks, ["partition", "--input", folder, "-o", store, "--targets", "--force"], r"--targets: .* has no labels in \.npy")


def linear(ranks):
    """y = A^ X w + b is fitted by one layer."""
    with tempfile.TemporaryDirectory() as scratch:
        count, width = 600, 12
        edges = [(v, (v * k + k) % count) for v in range(count) for k in (1, 7, 31) if v != (v * k + k) % count]
        rows = [[math.sin(1 + 3 * v + 5 * j + v * j % 17) for j in range(width)] for v in range(count)]
        fit(ranks, scratch, count, edges, rows, [math.cos(j) for j in range(width)], [])


def aggregated(count, edges, numbers):
    """A^ times a column."""
    neighbors = [{v} for v in range(count)]
    for u, v in edges:
        neighbors[u].add(v)
        neighbors[v].add(u)
    scale = [len(near_by) ** -0.5 for near_by in neighbors]
    return [scale[v] * sum(scale[u] * numbers[u] for u in near_by) for v, near_by in enumerate(neighbors)]


def fit(ranks, scratch, count, edges, rows, w, how, folder=None):
    y = [z + 0.5 for z in aggregated(count, edges, [sum(x * weight for x, weight in zip(row, w)) for row in rows])]
    parts = [(7 * v + v // 11) % 5 for v in range(count)]
    parts = [0 if part > 1 else part + 1 for part in parts]
    folder = folder or os.path.join(scratch, "linear")
    write_targets(folder, count, edges, flat(rows) if not how else None, [y], parts)
    store, metrics = os.path.join(scratch, "linear.h5"), os.path.join(scratch, "m.jsonl")
    expect_success(ranks, ["partition", "--input", folder, "-o", store])
    expect_success(ranks, ["train", "--graph", store, "--layers", "1", "--dropout", "0", "--lr", "0.05", "--epochs", "300", "--eval-every", "50",
                           "--metrics", metrics, *how])
    last = events(metrics, "done")[0]["last"]
    check(min(last["train_r2"], last["val_r2"], last["test_r2"]) >= 0.95, f"fits badly: {last}")


def linear_on_cora(ranks):
    data = os.path.join(os.environ.get("ORTHANT_DATA", ""), "datasets", "cora")
    if not os.path.isdir(data):
        print("skipped the targets on Cora: ORTHANT_DATA names no folder with datasets/cora")
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = os.path.join(scratch, "cora")
        os.mkdir(folder)
        for name in ("x_data", "x_indices", "x_indptr", "x_shape"):
            shutil.copy(os.path.join(data, "npy", f"{name}.npy"), folder)
        offsets, columns = (read_npy(os.path.join(folder, f"x_{name}.npy"))[1] for name in ("indptr", "indices"))
        count, width = read_npy(os.path.join(folder, "x_shape.npy"))[1]
        w = [math.cos(j) for j in range(width)]
        sums = [[sum(w[columns[k]] for k in range(offsets[v], offsets[v + 1]))] for v in range(count)]  # X is binary
        fit(ranks, scratch, count, table(data, "raw/edge.csv", int), sums, [1.0], ["--weight-decay", "1e-4"], folder)


def mistakes(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        store = karate(scratch, 1)
        train = ["train", "--graph", store, "--epochs", "1"]
        for wrong, pattern in [(["--task", "classification"], r"--task classification: .*g\.h5 has targets of regression; leave it out"),
                               (["--loss", "cross-entropy"], "--loss cross-entropy is for classes, and .* has targets of regression: leave it out"),
                               (["--loss", "focal"], "--loss focal is for classes"), (["--class-weights", "balanced"], "--class-weights balanced is for classes"),
                               (["--label-smoothing", "0.1"], "--label-smoothing 0.1 is for classes"), (["--roc-auc"], "--roc-auc is for classes")]:
            expect_mistake(ranks, [*train, *wrong], pattern)
        classes = ["train", "--dataset", "karate", "--epochs", "1"]
        for wrong, pattern in [(["--task", "regression"], "--task regression: .* has classes, and targets are numbers that are not all integers; leave it out"),
                               (["--loss", "mse"], "--loss mse is for targets of regression, and .* has classes: leave it out"),
                               (["--monitor", "r2"], "--monitor r2 is for targets of regression"), (["--monitor", "mae"], "--monitor mae is for targets")]:
            expect_mistake(ranks, [*classes, *wrong], pattern)
        expect_success(1, [*classes, "--save-weights", os.path.join(scratch, "c.h5")])
        for loss, pattern in (("focal", "is for training; evaluate uses it with targets of regression only: leave it out"),
                              ("mse", "is for targets of regression, and .* has classes: leave it out")):
            expect_mistake(ranks, ["evaluate", *classes[1:3], "--weights", os.path.join(scratch, "c.h5"), "--loss", loss], f"--loss {loss} {pattern}")
        expect_success(ranks, [*classes, "--task", "classification"])
        expect_mistake(ranks, ["export", store, "-o", os.path.join(scratch, "back")], "targets of regression have no files in the format ogb: take npy")
        weights = os.path.join(scratch, "w.h5")
        expect_success(1, [*train, "--save-weights", weights])
        expect_mistake(ranks, ["evaluate", "--graph", store, "--weights", weights, "--probabilities", "--predictions", os.path.join(scratch, "p.h5")],
                       "--probabilities are of classes, and .* has targets of regression")
        expect_success(ranks, ["evaluate", "--graph", store, "--weights", weights, "--task", "regression"])
        expect_success(ranks, ["plan", "--graph", store])
        expect_success(ranks, ["bench", "epoch", "--graph", store])
        folder = os.path.join(scratch, "g")
        write_npy(os.path.join(folder, "y.npy"), (COUNT,), "d", [math.inf] + [0.5] * (COUNT - 1))
        done = run(ranks, ["partition", "--input", folder, "-o", os.path.join(scratch, "new.h5")])
        require(done.returncode == 2 and "y.npy: target inf at element 0 (byte 128); targets are finite numbers, or nan for none" in done.stderr,
                "accepts an infinite target", done)


if __name__ == "__main__":
    jobs = [(ranks, (against_pytorch,)) for ranks in (1, 2, 3, 4)] + [(ranks, (every_way,)) for ranks in (2, 4)]
    jobs += [(1, (constant_targets,)), (4, (constant_targets,)), (1, (integers,)), (3, (integers,)), (1, (linear,)), (3, (linear,)), (2, (linear_on_cora,)), (1, (mistakes,)), (3, (mistakes,))]
    sys.exit(attempt_all(jobs))
