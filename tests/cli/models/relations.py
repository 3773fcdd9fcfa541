#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Graphs with relations and named vertices: relations.py PROGRAM

A file with a byte order mark, "\\r\\n", comments, repeats and self loops: its store is the same byte by byte from 1, 2 and 3 ranks,
`info` counts the edges as the loop here does, and a network without relations learns on it as on the edge list with --duplicates keep.
"""

import collections
import csv
import gzip
import json
import os
import random
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from program import Failure, attempt_all, expect_mistake, expect_success, require  # noqa: E402


def some_triples():
    random.seed(3)
    names = [f"vertex {v}" for v in range(40)]
    triples = [(random.choice(names), random.choice(["likes", "is a", "knows"]), random.choice(names)) for _ in range(400)]
    return triples + triples[:50] + [(name, "likes", name) for name in names[:5]]


def write(path, triples):
    lines = ["# head relation tail", ""] + ["\t".join(triple) for triple in triples]
    with open(path, "wb") as file:
        file.write(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())  # the last line has no end


def content(path):
    with open(path, "rb") as file:
        return file.read()


def stores(_):
    triples = some_triples()
    distinct = set(triples)
    with tempfile.TemporaryDirectory() as folder:
        def at(name):
            return os.path.join(folder, name)
        write(at("t.tsv"), triples)
        for more in ([], ["--add-inverse"], ["--permute", "pieces", "--clusters", "3"], ["--self-loops", "drop"]):
            for ranks in (1, 2, 3):
                done = expect_success(ranks, ["partition", "--input", at("t.tsv"), "--format", "triples", "-o", at(f"{ranks}.h5"), "--force", *more])
            require(content(at("1.h5")) == content(at("2.h5")) == content(at("3.h5")), f"{more}: stores differ", done)
            info = expect_success(2, ["info", "--verify", at("1.h5")])
            kept = {triple for triple in distinct if "drop" not in more or triple[0] != triple[2]}
            counts = collections.Counter(relation for _, relation, _ in kept)
            relations = list(dict.fromkeys(relation for _, relation, _ in triples))
            if "--add-inverse" in more:
                counts.update({"rev_" + relation: count for relation, count in counts.items()})
                relations += ["rev_" + relation for relation in relations]
            found = re.findall(r"^ +(\d+)  (\S.*?) +(\d+) entries$", info.stdout, re.M)
            require(found == [(str(r), name, str(counts[name])) for r, name in enumerate(relations)], f"{more}: not {counts}", info)
            require(f"entries     {sum(counts.values())} of A" in info.stdout and "names       of all vertices" in info.stdout, "other counts", info)
            require("ids of edges begin at 1" not in done.stdout, "doubts the ids", done)
            if not more:
                merged = len(triples) - len(distinct)
                require(f"{len(triples)} read, {merged} repeats merged" in done.stdout, "does not count repeats", done)


def losses(ranks, folder, store, model):
    metrics = os.path.join(folder, "m.jsonl")
    expect_success(ranks, ["train", "--graph", store, "--epochs", "3", "--hidden", "8", "--metrics", metrics, "--force", *model])
    with open(metrics, encoding="utf-8") as file:
        return [event["loss"] for event in map(json.loads, file) if event["event"] == "epoch"]


def networks(ranks):
    """Without relations."""
    triples = some_triples()
    numbers = {name: v for v, name in enumerate(dict.fromkeys(v for head, _, tail in triples for v in (head, tail)))}
    data = ["--random-features", "5", "--random-labels", "3", "--random-split", "0.5,0.2,0.3"]
    with tempfile.TemporaryDirectory() as folder:
        def at(name):
            return os.path.join(folder, name)
        write(at("t.tsv"), triples)
        with open(at("e.txt"), "w", encoding="utf-8") as file:
            file.writelines(f"{numbers[head]} {numbers[tail]}\n" for head, _, tail in set(triples))
        expect_success(1, ["partition", "--input", at("t.tsv"), "--format", "triples", "-o", at("t.h5"), *data])
        expect_success(1, ["partition", "--input", at("e.txt"), "--directed", "--duplicates", "keep", "-o", at("e.h5"), *data])
        for model in (["--model", "sage"], ["--model", "gcn", "--schedule", "rows"]):
            expected = losses(ranks, folder, at("e.h5"), model)
            found = losses(ranks, folder, at("t.h5"), model)
            if len(expected) != 3 or found != expected:
                raise Failure(f"{model}: losses {found} and not {expected}")


def predictions(ranks):
    """Of vertices by their names."""
    with tempfile.TemporaryDirectory() as folder:
        def at(name):
            return os.path.join(folder, name)
        names = ["plain", 'with "quotes", a comma', "third"]
        with open(at("t.tsv"), "w", encoding="utf-8") as file:
            file.writelines(f"{names[v]}\tis\t{names[(v + 1) % 3]}\n" for v in range(3))
        expect_success(1, ["partition", "--input", at("t.tsv"), "--format", "triples", "-o", at("t.h5"), "--random-features", "3",
                           "--random-labels", "2", "--random-split", "0.4,0.3,0.3"])
        expect_success(1, ["train", "--graph", at("t.h5"), "--epochs", "1", "--hidden", "4", "--save-weights", at("w.h5")])
        done = expect_success(ranks, ["evaluate", "--graph", at("t.h5"), "--weights", at("w.h5"), "--predictions", at("p.csv")])
        with open(at("p.csv"), encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
        require(header == ["vertex", "name", "class"] and [row[:2] for row in rows] == [[str(v), name] for v, name in enumerate(names)],
                f"has {header}, {rows}", done)


def mistakes(ranks):
    with tempfile.TemporaryDirectory() as folder:
        def at(name):
            return os.path.join(folder, name)
        write(at("t.tsv"), some_triples())
        with open(at("short.tsv"), "w", encoding="utf-8") as file:
            file.write("a\tr\tb\na\tr\n")
        with open(at("cut.tsv.gz"), "wb") as file:
            file.write(gzip.compress(b"a\tr\tb\n" * 10000)[:-20])
        with open(at("e.txt"), "w", encoding="utf-8") as file:
            file.write("0 1\n1 2\n")
        with open(at("n.txt"), "w", encoding="utf-8") as file:
            file.write("a r b\nb s c\n")
        expect_success(1, ["partition", "--input", at("t.tsv"), "--format", "triples", "-o", at("t.h5")])
        triples = ["partition", "--format", "triples", "-o", at("none.h5"), "--input"]
        for arguments, pattern in (
                (triples + [at("short.tsv")], r"short\.tsv:2: \"a\?r\" has 2 columns separated by tabs; a triple is \"head relation tail\""),
                (triples + [at("cut.tsv.gz")], r"cut\.tsv\.gz.* end early"),
                (triples + [at("t.tsv"), "--duplicates", "keep"], r"--duplicates keep: equal edges of one relation are always merged"),
                (triples + [at("t.tsv"), "--edge-split", "0.1,0.1"], r"--edge-split holds out edges of undirected graphs without relations"),
                (["partition", "--input", at("n.txt"), "-o", at("none.h5")], r"n\.txt:1: \"a r b\" has names in place of vertex ids; --format triples reads"),
                (["partition", "--input", at("e.txt"), "--add-inverse", "-o", at("none.h5")], r"--add-inverse: .*e\.txt has no relations"),
                (["export", at("t.h5"), "-o", at("out")], r"t\.h5 has relations, which no format of export can hold")):
            expect_mistake(ranks, arguments, pattern)


def main():
    return attempt_all([(1, (stores,)), (1, (networks,)), (3, (networks,)), (2, (predictions,)), (3, (mistakes,))])


if __name__ == "__main__":
    raise SystemExit(main())
