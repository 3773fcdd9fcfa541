#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Numbers from outside, on one rank and on several: what is too large, too small or no number is refused in one line
# that names the bounds; what cannot fit in memory is refused before the work; what has diverged is not saved:
# limits.py PROGRAM PART.

import os
import re
import sys
import tempfile

from program import Failure, attempt_all, expect_mistake, expect_success, require, run

LARGEST = 2**63 - 1
LONG = "9" * 23
SEED = (0, LARGEST)
VERTICES = 2**40
EDGES = 2**44
COLUMNS = 2**24
REPEAT = (0, 1_000_000)

# command, option, the least and the most
WHOLE_NUMBERS = [
    ("train", "--layers", 1, 10_000), ("train", "--hidden", 1, 2**20), ("train", "--epochs", 0, 10**9),
    ("train", "--seed", *SEED), ("train", "--batch", 1, VERTICES), ("train", "--accumulate", 1, LARGEST),
    ("train", "--warmup-steps", 0, LARGEST),
    ("train", "--finish-full", 0, 10**9), ("train", "--eval-every", 0, 10**9), ("train", "--log-every", 1, 10**9),
    ("generate", "--vertices", 2, VERTICES), ("generate", "--edges", 0, EDGES), ("generate", "--features", 0, COLUMNS),
    ("generate", "--classes", 1, COLUMNS), ("generate", "--seed", *SEED),
    ("partition", "--vertices", 2, VERTICES), ("partition", "--edges", 0, EDGES), ("partition", "--features", 0, COLUMNS),
    ("partition", "--classes", 1, COLUMNS),
    ("partition", "--random-features", 0, COLUMNS), ("partition", "--random-labels", 0, COLUMNS),
    ("partition", "--metis", 0, 2**31 - 1), ("partition", "--clusters", 0, 2**24), ("partition", "--seed", *SEED),
    ("bench spmm", "--vertices", 2, VERTICES), ("bench spmm", "--edges", 1, EDGES), ("bench spmm", "--seed", *SEED),
    ("bench spmm", "--repeat", *REPEAT), ("bench gemm", "--rows", 1, VERTICES), ("bench gemm", "--layers", 1, 10_000),
    ("bench gemm", "--hidden", 1, 2**20), ("bench gemm", "--stream-mib", 1, 2**20), ("bench gemm", "--gemm-size", 1, 2**15),
    ("bench collectives", "--repeat", *REPEAT), ("bench epoch", "--epochs", 0, 10**9),
]
# command, option, how its bounds are told
NUMBERS = [
    ("train", "--lr", "more than 0 and at most 1e+38"), ("train", "--dropout", "at least 0 and at most 0.999"),
    ("train", "--min-lr", "at least 0 and at most 1e+38"),
    ("train", "--weight-decay", "at least 0 and at most 1e+30"),
    ("train", "--weight-decay-first-layer", "at least 0 and at most 1e+30"),
    ("train", "--clip-norm", "more than 0 and at most 1e+30"),
    ("train", "--batch-train-fraction", "at least 0 and at most 1"), ("info", "--timeout", "at least 0 and at most 1000000000"),
    ("partition", "--random-split", "at least 0 and at most 1"), ("bench epoch", "--lr", "more than 0 and at most 1e+38"),
]


def whole_number(ranks, command, option, least, most):
    bounds = re.escape(f"but must be at least {least} and at most {most}")
    for value in (str(most + 1), str(least - 1), LONG, "-" + LONG):
        expect_mistake(ranks, command.split() + [f"{option}={value}"], rf"{option}: is {re.escape(value)}, {bounds}")
    for value in ("1.5", "1e3", "0x10", "nan", "12ab", " 7"):
        expect_mistake(ranks, command.split() + [f"{option}={value}"], rf"{option}: needs a whole number, not '{re.escape(value)}'")


def number(ranks, command, option, bounds):
    for value in ("nan", "-nan", "inf", "-inf", "-1", "1e39", "1e400", "-1e400", LONG + "9" * 40):
        text = value + (",0.2,0.2" if option == "--random-split" else "")
        expect_mistake(ranks, command.split() + [f"{option}={text}"],
                       rf"{option}: is {re.escape(value)}, but must be {re.escape(bounds)}")
    if option == "--random-split":
        return  # a list: its words are not looked at before its numbers are
    expect_mistake(ranks, command.split() + [f"{option}=0.1.2"], rf"{option}: needs a number, not '0\.1\.2'")


def elsewhere(ranks):
    """The environment and a file pass the same checks."""
    train = ["train", "--dataset", "karate", "--epochs", "1"]
    for name, value, pattern in (("ORTHANT_LAYERS", LONG, "must be at least 1 and at most 10000"),
                                 ("ORTHANT_HIDDEN", str(LARGEST), "must be at least 1 and at most 1048576"),
                                 ("ORTHANT_LR", "inf", "must be more than 0"), ("ORTHANT_LR", "nan", "must be more than 0"),
                                 ("ORTHANT_CLIP_NORM", "1e400", "must be more than 0")):
        expect_mistake(ranks, train, rf"{name}: .*is {value}, but {pattern}", **{name: value})
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.toml")
        for text, pattern in (("layers = 10001", r"run\.toml:2: .*is 10001, but must be at least 1 and at most 10000"),
                              (f"hidden = {LARGEST}", r"run\.toml:2: .*must be at least 1 and at most 1048576"),
                              (f"layers = {LONG}", r"run\.toml:2:.*not valid TOML"),
                              ("lr = inf", r"run\.toml:2: .*is inf, but must be more than 0"),
                              ("lr = nan", r"run\.toml:2: .*is nan, but must be more than 0"),
                              ("weight-decay = inf", r"run\.toml:2: .*is inf, but must be at least 0"),
                              ("timeout = inf", r"run\.toml:2: .*is inf, but must be at least 0")):
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"[train]\n{text}\n")
            expect_mistake(ranks, train + ["--config", path], pattern)


# Sizes that are given in one word, or follow from several.
MISTAKES = [
    (["train", "--dataset", "karate", "--grid", "4294967296x1x1x1"], r"is not a grid|is for far more ranks"),
    (["train", "--dataset", "karate", "--grid", "65536x65536x65536x65536"], r"is for far more ranks"),
    (["train", "--dataset", "karate", "--grid", "-1x1x1x-1"], r"is not a grid"),
    (["train", "--dataset", f"sbm:vertices={2**62}"], rf"vertices is {2**62}; it must be between 2 and {VERTICES}"),
    (["train", "--dataset", "rmat:vertices=9e15"], rf"vertices is 9{'0' * 15}; it must be between 2 and {VERTICES}"),
    (["train", "--dataset", f"sbm:vertices={LONG}"], rf"vertices={LONG} is not a whole number from 0 to {LARGEST}"),
    (["train", "--dataset", "sbm:vertices=-1"], r"vertices=-1 is not a whole number from 0 to"),
    (["train", "--dataset", "sbm:vertices=nan"], r"vertices=nan is not a number"),
    (["train", "--dataset", "sbm:features=9e15"], rf"features is .*; it must be between 0 and {COLUMNS}"),
    (["train", "--dataset", "sbm:edges=9e15"], rf"edges is .*; it must be between 0 and {EDGES}"),
    (["train", "--dataset", "sbm:classes=9e15"], rf"classes is .*; it must be between 0 and {COLUMNS}"),
    (["train", "--dataset", "rmat:vertices=1e7,features=1e7,classes=1e6"],
     r"features times the number of classes is 10000000000000; it must be between 0 and 1073741824"),
    (["train", "--dataset", "sbm:separation=1e300"], r"separation 1e\+300 is not between"),
    (["train", "--dataset", "rmat:directed=2"], r"directed is 2; it must be between 0 and 1"),
    (["train", "--dataset", "grid2d:vertices=9e15"], r"it must be between 2 and"),
    (["bench", "spmm", "--widths", LONG], r"--widths: '9+' is no whole number from 1 to 65536"),
    (["bench", "gemm", "--rows", "10", "--widths", f"5-{LONG}"], r"--widths: '9+' is no whole number"),
    (["bench", "collectives", "--sizes", f"4:{LONG}"], r"is no range of sizes"),
    (["bench", "collectives", "--sizes", f"4:{LARGEST}G"], r"is no range of sizes"),
]

# Refused before anything is allocated.
TOO_LARGE = [
    (["train", "--dataset", "karate", "--hidden", str(2**20)], r"train needs about \d+\.\d GiB of memory on \d ranks? of a node"),
    (["train", "--dataset", "karate", "--hidden", str(2**20), "--layers", "10000", "--compute-dtype", "fp64"], r"train needs about"),
    (["train", "--dataset", "karate", "--hidden", str(2**20), "--mode", "minibatch", "--batch", "8"], r"train needs about"),
    (["train", "--dataset", "karate", "--hidden", str(2**20), "--mode", "minibatch", "--batch", "8", "--eval-every", "0"],
     r"train needs about"),
    (["train", "--dataset", "rmat:vertices=1e12"], r"a graph that each rank makes for itself needs about"),
    (["train", "--dataset", "rmat:vertices=1e11,features=1e4"], r"a graph that each rank makes for itself needs about"),
    (["train", "--dataset", "rmat:vertices=1e12,features=1.6e7,classes=2"], r"the bytes of the features: .* does not fit in 64 bits"),
    (["bench", "epoch", "--dataset", "karate", "--hidden", str(2**20)], r"bench epoch needs about"),
    (["bench", "spmm", "--vertices", str(2**40), "--edges", "10"], r"a graph that each rank makes for itself needs about"),
    (["bench", "gemm", "--rows", str(2**40), "--widths", "16-16"], r"bench gemm needs about"),
]


def mistakes(ranks, arguments, pattern):
    expect_mistake(ranks, arguments, pattern)


def too_large(ranks, arguments, pattern):
    expect_mistake(ranks, arguments, pattern)


def forced(ranks):
    """--force-memory: the work begins, and ends where memory does."""
    done = run(ranks, ["train", "--dataset", "karate", "--hidden", str(2**20), "--force-memory"])
    require(done.returncode != 0, "has 20 TiB of memory", done)
    require("train needs about" not in done.stderr, "is refused although it is forced", done)
    expect_success(ranks, ["train", "--dataset", "karate", "--epochs", "1", "--force-memory"])


def partition(ranks):
    """Its own estimate is enforced, and leaves no output."""
    with tempfile.TemporaryDirectory() as folder:
        expect_success(1, ["generate", "--kind", "ring", "--vertices", "100000", "--features", "0", "-o", folder + "/graph"])
        arguments = ["partition", "--input", folder + "/graph", "--format", "npy", "-o", folder + "/graph.h5",
                     "--random-features", str(COLUMNS)]
        expect_mistake(ranks, arguments, r"partition needs about \d+\.\d GiB of memory")
        if os.listdir(folder) != ["graph"]:
            raise Failure(f"leaves {os.listdir(folder)}")


STEEP = ["--lr", "1e38"]
DIVERGING = [
    (STEEP, r"after the update of epoch 1 the loss of the train part is nan: the training has diverged"),
    (STEEP + ["--eval-every", "0"], r"after the last update the norm of \S+ is \S+: the training has diverged"),
    (STEEP + ["--mode", "minibatch", "--batch", "34"], r"after the update of epoch 1 the loss of the train part is nan"),
    (STEEP + ["--mode", "minibatch", "--batch", "34", "--eval-every", "0"], r"after the last update the norm of"),
    (["--lr", "1e12", "--layers", "6", "--eval-every", "0"], r"the weights are not saved: the loss of the train part is nan"),
]


def diverging(ranks, arguments, pattern):
    """The last step diverges: no success, and no weights."""
    with tempfile.TemporaryDirectory() as folder:
        weights = folder + "/weights.h5"
        done = run(ranks, ["train", "--dataset", "karate", "--epochs", "1", "--save-weights", weights] + arguments)
        require(done.returncode == 1, "does not end with status 1", done)
        errors = re.findall(r"^orthant: error: (.*)$", done.stderr, re.M)
        require(len(errors) == 1 and re.search(pattern, errors[0]), f"lacks /{pattern}/", done)
        require(os.listdir(folder) == [], f"leaves {os.listdir(folder)}", done)


PARTS = {
    "numbers": [(whole_number, *row) for row in WHOLE_NUMBERS] + [(number, *row) for row in NUMBERS],
    "sizes": [(elsewhere,), (forced,), (partition,)] + [(mistakes, *row) for row in MISTAKES] + [(too_large, *row) for row in TOO_LARGE]
             + [(diverging, *row) for row in DIVERGING],
}


if __name__ == "__main__":
    ranks_of = {"numbers": (1,), "sizes": (1, 2)}[sys.argv[2]]
    sys.exit(attempt_all([(ranks, job) for ranks in ranks_of for job in PARTS[sys.argv[2]]]))
