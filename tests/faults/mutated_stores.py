#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mutated graph stores are refused with one line, or are as sound as an independent reader finds them.

mutated_stores.py PROGRAM [--count 40] [--seed 0] [--jobs 3]
mutated_stores.py PROGRAM --repeat SEED:NUMBER --keep FOLDER     one mutation again; its store stays in FOLDER

Half of the stores have right checksums. Each is described and verified, trained on, and exported: no signal, no hang;
status 2 with one line of error, or 0. What `info --verify` accepts, plain_store.py must accept as well.
"""

import argparse
import collections
import concurrent.futures
import os
import random
import shutil
import subprocess
import sys
import tempfile

import graph_seeds
import hdf5
import store_mutations
from jobs import Program
from mutated_inputs import Verdict

READER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "plain_store.py")
SEEDS = {"clusters": ("npy", ["--clusters", "3"]), "double": ("npy", []), "directed": ("npy_sparse", ["--directed"]), "natural": ("ogb", ["--permute", "none"]),
         "single": ("ogb_weighted", ["--permute", "single", "--normalize", "row", "--random-split", "0.5,0.2,0.3"]),
         "loops": ("integer.mtx", ["--normalize", "none", "--random-labels", "3", "--random-features", "4", "--random-split",
                                   "0.5,0.2,0.3"]),
         "one_way": ("ogb_npz", ["--directed"])}
LARGE = ["--kind", "sbm", "--vertices", "1500", "--edges", "3000", "--features", "3", "--classes", "3"]


def make_seeds(program, folder):
    """Small stores of every kind, and one whose arrays have several checksums and tiles."""
    seeds = graph_seeds.make_seeds()
    stores = {}

    def must(*arguments):
        status, text = program.run(1, *arguments)
        if status != 0:
            sys.exit(f"{arguments}: status {status}\n{text}")
    for name, (seed, flags) in SEEDS.items():
        path = os.path.join(folder, name)
        graph_seeds.write_files(seeds[seed], path)
        stores[name] = path + ".h5"
        must("partition", "--input", os.path.join(path, seed) if "." in seed else path, "-o", stores[name], *flags)
    stores["large"] = os.path.join(folder, "large.h5")
    must("generate", *LARGE, "-o", os.path.join(folder, "large"))
    must("partition", "--input", os.path.join(folder, "large"), "-o", stores["large"])
    return stores


def read_independently(library, store):
    """What plain_store.py finds wrong, or "": nothing."""
    done = subprocess.run([sys.executable, READER, library, store], capture_output=True, text=True, timeout=60)
    return done.stdout.strip() if done.returncode == 0 else f"the reader itself ends with {done.returncode} {done.stderr[-200:]}"


def try_mutation(program, library, stores, seed, number, scratch):
    folder = tempfile.mkdtemp(prefix="store_", dir=scratch)
    name = sorted(stores)[number % len(stores)]
    store = os.path.join(folder, "graph.h5")
    shutil.copy(stores[name], store)
    what = "unchanged"
    if number >= 0:
        what = store_mutations.mutate(random.Random(f"{seed}:{number}"), hdf5.Library(library), store)
    label = f"{name}: {what}"
    ranks = 2 if number % 4 == 3 else 1
    statuses = []
    batches = ["--mode", "minibatch", "--sampler", "clusters", "--batch", "7"] if name == "clusters" else []
    for command in (["info", store, "--verify"], ["info", store], ["train", "--graph", store, "--epochs", "1", "--layers", "2",
                                                                  "--hidden", "4", *batches],
                    ["export", store, "-o", os.path.join(folder, "back"), "--format", "npy"]):
        status, text = program.run(1 if "info" in command and ranks == 1 else ranks, *command)
        fault = program.fault(status, text)
        if fault:
            return Verdict(fault, f"{label}; {command[0]} on {ranks}: {program.gist(text)}")
        statuses.append(status)
    if statuses[0] == 0:
        problem = read_independently(library, store)
        if problem:
            return Verdict("ACCEPTED NONSENSE", f"{label}; info --verify takes it; the reader says: {problem}")
        outcome = "accepted, sound"
    else:
        others = [command for command, status in zip(("info", "train", "export"), statuses[1:]) if status == 0]
        outcome = "refused by --verify; " + (" and ".join(others) + " end with 0" if others else "by all")
    graph_seeds.remove(folder)
    return Verdict(outcome, "")


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
    library = hdf5.library_of(program.path)
    if library is None:
        print("skipped: the program is not linked with a shared HDF5 library")
        return 77
    with tempfile.TemporaryDirectory(prefix="orthant_stores_") as scratch:
        stores = make_seeds(program, scratch)
        if options.repeat:
            seed, number = map(int, options.repeat.split(":"))
            os.makedirs(options.keep, exist_ok=True)
            print(*try_mutation(program, library, stores, seed, number, options.keep))
            return 0
        numbers = [-1 - i for i in range(len(stores))] + list(range(options.count))
        outcomes = collections.Counter()
        bad = 0
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            verdicts = pool.map(lambda number: try_mutation(program, library, stores, options.seed, number, scratch), numbers)
            for number, verdict in zip(numbers, verdicts):
                is_right = verdict.outcome.startswith(("accepted", "refused") if number >= 0 else "accepted")
                outcomes[verdict.outcome if number >= 0 else "seeds, " + verdict.outcome] += 1
                if not is_right:
                    bad += 1
                    print(f"FAIL {options.seed}:{number} {verdict.outcome}: {verdict.detail}", flush=True)
        for outcome, count in sorted(outcomes.items()):
            print(f"{count:6} {outcome}")
        print(f"{len(numbers)} stores, {bad} failed")
        return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
