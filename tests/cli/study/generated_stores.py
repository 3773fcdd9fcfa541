#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""partition --generate makes the store that generate and partition make, on any number of ranks: generated_stores.py PROGRAM"""

import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from program import Failure, attempt_all, expect_success  # noqa: E402

GRAPHS = {
    "rmat": ["--vertices", "1000", "--edges", "9000", "--features", "5", "--classes", "3"],
    "sbm": ["--vertices", "900", "--edges", "7000", "--features", "6", "--classes", "4"],
    "grid2d": ["--vertices", "400", "--features", "3", "--classes", "2"],
    "ring": ["--vertices", "50", "--edges", "80", "--features", "2", "--classes", "2"],
}


def check(condition, what):
    if not condition:
        raise Failure(what)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def lines_of(said):
    """Of `info`, without where the graph came from."""
    return [line for line in said.splitlines() if not re.match(r"file |graph store ", line)]


def same_store(_, kind):
    with tempfile.TemporaryDirectory() as folder:
        at = lambda *names: os.path.join(folder, *names)
        seed = ["--seed", "7"]
        expect_success(1, ["generate", "--kind", kind, *GRAPHS[kind], *seed, "-o", at("files")])
        expect_success(1, ["partition", "--input", at("files"), *seed, "-o", at("read.h5")])
        stores = []
        for ranks in (1, 2, 4):
            expect_success(ranks, ["partition", "--generate", kind, *GRAPHS[kind], *seed, "-o", at(f"{ranks}.h5")])
            stores.append(read(at(f"{ranks}.h5")))
            check(sorted(os.listdir(folder)) == sorted(["files", "read.h5", *(f"{each}.h5" for each in (1, 2, 4) if each <= ranks)]),
                  f"writes other files: {os.listdir(folder)}")
        check(stores[0] == stores[1] == stores[2], f"{kind}: the store depends on the number of ranks")
        made, read_store = (expect_success(1, ["info", at(name), "--verify"]).stdout for name in ("1.h5", "read.h5"))
        check(lines_of(made) == lines_of(read_store), f"{kind}: other facts: {made}{read_store}")
        expect_same_arrays(at)


def expect_same_arrays(at):
    """All that the two stores hold, in original ids: what `export` writes of them."""
    for name in ("1", "read"):
        expect_success(1, ["export", at(name + ".h5"), "--format", "npy", "-o", at("out-" + name)])
    names = sorted(name for name in os.listdir(at("out-1")) if name.endswith(".npy"))
    check(len(names) >= 5 and names == sorted(name for name in os.listdir(at("out-read")) if name.endswith(".npy")), f"arrays {names}")
    for name in names:
        check(read(at("out-1", name)) == read(at("out-read", name)), f"{name} differs")


def without_features(_):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "g.h5")
        expect_success(2, ["partition", "--generate", "rmat", "--vertices", "100", "--features", "0", "-o", path])
        said = expect_success(1, ["info", path]).stdout
        check(re.search(r"features +none", said) and re.search(r"labels +none", said), f"has features: {said}")


if __name__ == "__main__":
    sys.exit(attempt_all([(1, (same_store, kind)) for kind in GRAPHS] + [(1, (without_features,))]))
