#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mutated graphs are refused with one line, or read as an independent reader reads them.

mutated_inputs.py PROGRAM [--count 40] [--seed 0] [--jobs 3] [--keep FOLDER]
mutated_inputs.py PROGRAM --repeat SEED:NUMBER --keep FOLDER     one mutation again; its files stay in FOLDER

Each mutation is partitioned on one rank or two. No signal, no hang; status 2 with one line of error, or 0. If it is
accepted, plain_reader.py must accept it as well, and the store, exported again, must hold the same graph.
"""

import argparse
import collections
import concurrent.futures
import math
import os
import random
import re
import sys
import tempfile

import graph_seeds
from jobs import Program
from plain_reader import read_graph

Verdict = collections.namedtuple("Verdict", "outcome detail")


def describe(seed, number):
    """The files of mutation `number` of `seed`, and what was done. -1, -2 .. are the seeds themselves."""
    seeds = graph_seeds.make_seeds()
    if number < 0:
        name = sorted(seeds)[-1 - number]
        return name, "unchanged", seeds[name]
    draw = random.Random(f"{seed}:{number}")
    name = sorted(seeds)[number % len(seeds)]
    what, files = graph_seeds.mutate(draw, seeds[name])
    return name, what, files


def compare(ours, theirs, is_directed, is_symmetric):
    """What differs between the graph in the file (`ours`) and the one that the store gives back (`theirs`), or None.

    Of a symmetric store every pair comes back once.
    """
    if ours.num_vertices != theirs.num_vertices:
        return f"{theirs.num_vertices} vertices, the reader finds {ours.num_vertices}"
    right, found = ours.entries(is_directed), theirs.entries(not is_symmetric)
    if set(right) != set(found):
        return f"{len(found)} entries, the reader finds {len(right)}"
    if ours.is_weighted != theirs.is_weighted:
        return f"weighted: {theirs.is_weighted}, the reader says {ours.is_weighted}"
    scale = {}
    for source, target, weight in ours.edges:
        for key in ((source, target), (target, source)):
            scale[key] = scale.get(key, 0) + abs(weight)
    if any(not math.isclose(right[key], found[key], rel_tol=0, abs_tol=1e-6 * scale[key]) for key in right):
        return "weights differ"
    if (ours.features is None) != (theirs.features is None) or ours.num_features != theirs.num_features:
        return f"{theirs.num_features} features, the reader finds {ours.num_features}"
    for mine, other in zip(ours.features or [], theirs.features or []):
        for column in set(mine) | set(other):
            a, b = mine.get(column, 0.0), other.get(column, 0.0)
            if not math.isclose(a, b, rel_tol=3e-7, abs_tol=1e-44):
                return f"a feature is {b}, the reader finds {a}"
    if ours.labels != theirs.labels:
        return "labels differ"
    if (ours.split or [set()] * 3) != (theirs.split or [set()] * 3):
        return "the split differs"
    return None


def require_counts(text, ours):
    """What `info` says of labels and split agrees with the reader's counts."""
    def wanted(pattern, value):
        found = re.search(pattern, text)
        if found is None or [int(group) for group in found.groups()] != value:
            return f"info says {found.group() if found else 'nothing'}, the reader finds {value}"
        return None
    problems = [wanted(r"vertices +(\d+)", [ours.num_vertices])]
    if ours.labels is not None:
        none = {None} if ours.has_targets else {-1}
        known = [label for label in ours.labels if (label != -1 if isinstance(label, int) else set(label) != none)]
        kind = "targets of regression" if ours.has_targets else "classes"
        problems.append(wanted(rf"(\d+) {kind}, (\d+) vertices labelled", [ours.num_classes, len(known)]))
    if ours.split is not None:
        problems.append(wanted(r"train (\d+), valid (\d+), test (\d+)", [len(part) for part in ours.split]))
    return next((problem for problem in problems if problem), None)


def try_mutation(program, seed, number, scratch):
    name, what, files = describe(seed, number)
    return try_files(program, name, what, files, 2 if number % 4 == 3 else 1, number % 2 == 1, scratch)


def try_files(program, name, what, files, ranks, is_directed, scratch):
    """Partitions the graph in `files`, seed `name`'s, and compares what becomes of it."""
    folder = tempfile.mkdtemp(prefix="input_", dir=scratch)
    graph_seeds.write_files(files, os.path.join(folder, "graph"))
    path = os.path.join(folder, "graph")
    if "." in name:
        path = os.path.join(path, name)
    flags = ["--directed"] if is_directed else []
    store, back = os.path.join(folder, "graph.h5"), os.path.join(folder, "back")
    label = f"{name}: {what}{' --directed' if is_directed else ''}, on {ranks}"
    status, text = program.run(ranks, "partition", "--input", path, "-o", store, *flags)
    fault = program.fault(status, text)
    if fault:
        return Verdict(fault, f"{label}: {program.gist(text)}")
    if status == 2:
        return Verdict("refused", "")
    try:
        ours = read_graph(path)
    except (ValueError, OSError) as error:
        return Verdict("ACCEPTED NONSENSE", f"{label}: the reader says: {error}")
    status, text = program.run(1, "info", store, "--verify")
    if status != 0:
        return Verdict("store not sound", f"{label}: {program.gist(text)}")
    is_symmetric = re.search(r"entries .*; symmetric", text) is not None
    difference = require_counts(text, ours)
    if not difference:
        status, text = program.run(1, "export", store, "-o", back, "--format", "npy")
        if status != 0:
            return Verdict("export fails", f"{label}: {program.gist(text)}")
        difference = compare(ours, read_graph(back), is_directed, is_symmetric)
    graph_seeds.remove(folder)
    return Verdict("DISAGREE", f"{label}: {difference}") if difference else Verdict("accepted, the same", "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--repeat")
    parser.add_argument("--keep")
    options = parser.parse_args()
    program = Program(options.program)
    if options.repeat:
        seed, number = map(int, options.repeat.split(":"))
        os.makedirs(options.keep, exist_ok=True)
        print(*try_mutation(program, seed, number, options.keep))
        return 0
    # The seeds themselves come first: every one is read, and read alike.
    numbers = [-1 - i for i in range(len(graph_seeds.make_seeds()))] + list(range(options.count))
    return report(program, options, numbers)


def report(program, options, numbers):
    outcomes = collections.Counter()
    bad = 0
    with tempfile.TemporaryDirectory(prefix="orthant_inputs_") as scratch, \
            concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        verdicts = pool.map(lambda number: try_mutation(program, options.seed, number, scratch), numbers)
        for number, verdict in zip(numbers, verdicts):
            is_right = verdict.outcome == "accepted, the same" or (verdict.outcome == "refused" and number >= 0)
            outcomes[verdict.outcome if number >= 0 else "seeds, " + verdict.outcome] += 1
            if not is_right:
                bad += 1
                print(f"FAIL {options.seed}:{number} {verdict.outcome}: {verdict.detail}", flush=True)
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:6} {outcome}")
    print(f"{len(numbers)} inputs, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
