#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Outputs that would destroy something, and files that are none: outputs.py PROGRAM [--only WORDS]

Every case runs in a folder of its own, which holds a graph in two formats, a store and weights. It has to end with the
status that is wanted (2 with one line of error, unless said otherwise), and the files named by `keep` stay as they are.
"""

import argparse
import collections
import concurrent.futures
import os
import shutil
import sys
import tempfile

import graph_seeds
from jobs import Program

Case = collections.namedtuple("Case", "command keep prepare statuses")
TRAIN = "train --graph g.h5 --epochs 1 --layers 2 --hidden 4"
EVALUATE = "evaluate --graph g.h5 --weights w.h5"
PARTITION = "partition --input npy -o o.h5"
OLD = "older\n"


def case(command, keep="", prepare=None, statuses=(2,)):
    return Case(command, keep.split(), prepare, statuses)


def older(*names):
    def write(folder):
        for name in names:
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(OLD)
    return write


def symbolic(target, *names):
    return lambda folder: [os.symlink(target, os.path.join(folder, name)) for name in names]


def hard(target, name):
    return lambda folder: os.link(os.path.join(folder, target), os.path.join(folder, name))


def pipe(name):
    def make(folder):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            os.remove(path)
        os.mkfifo(path)
    return make


# No case names a device as an output that is renamed into place: a program that is wrong would replace the device.
CASES = [
    # An output that is an input, under any name.
    case(f"{TRAIN} --metrics g.h5", "g.h5"), case(f"{TRAIN} --metrics m", "g.h5", symbolic("g.h5", "m")),
    case(f"{TRAIN} --metrics m", "g.h5", hard("g.h5", "m")), case(f"{TRAIN} --trace g.h5", "g.h5"),
    case(f"{TRAIN} --save-weights g.h5", "g.h5"), case(f"{TRAIN} --save-weights ./npy/../g.h5", "g.h5"),
    case(f"{TRAIN} --save-weights s", "g.h5", symbolic("g.h5", "s")),
    case(f"{TRAIN} --config c.toml --metrics c.toml", "c.toml", older("c.toml")),
    case(f"{EVALUATE} --predictions g.h5", "g.h5"), case(f"{EVALUATE} --predictions w.h5", "w.h5"),
    case(f"{EVALUATE} --predictions p", "w.h5", symbolic("w.h5", "p")), case(f"{EVALUATE} --metrics w.h5", "w.h5"),
    case("partition --input npy -o npy/edge_index.npy --force", "npy/edge_index.npy"),
    case("partition --input npy -o npy/x.npy --force", "npy/x.npy"), case(f"{PARTITION} --metrics npy/meta.json", "npy/meta.json"),
    case("partition --input ogb -o o.h5 --metrics ogb/raw/edge.csv.gz", "ogb/raw/edge.csv.gz"),
    case(f"{PARTITION} --trace npy/x.npy", "npy/x.npy"), case("export g.h5 -o b --metrics g.h5", "g.h5"),
    case("export g.h5 -o g.h5", "g.h5"), case("export g.h5 -o npy --format npy", "npy/x.npy npy/edge_index.npy"),
    case("generate --vertices 50 -o npy", "npy/x.npy"), case("generate --vertices 50 -o w.h5", "w.h5"),
    case("info g.h5 --metrics g.h5", "g.h5"), case("info g.h5 --trace g.h5", "g.h5"),
    # Two outputs of one name.
    case(f"{TRAIN} --trace x --save-weights x"), case(f"{TRAIN} --trace x --metrics x"),
    case(f"{TRAIN} --metrics x --save-weights x"), case(f"{EVALUATE} --predictions x --metrics x"),
    case(f"{PARTITION} --metrics o.h5"),
    # A folder of checkpoints that is something else.
    case(f"{TRAIN} --checkpoint g.h5", "g.h5"), case(f"{TRAIN} --checkpoint x --save-weights x"), case(f"{TRAIN} --checkpoint w.h5", "w.h5"),
    case(f"{TRAIN} --checkpoint f", "", pipe("f")), case(f"{TRAIN} --resume f", "", pipe("f")), case(f"{TRAIN} --resume w.h5", "w.h5"),
    case(f"{TRAIN} --checkpoint /dev/null"), case(f"{TRAIN} --resume npy"), case(f"{TRAIN} --resume g.h5 --checkpoint c", "g.h5"),
    # Older outputs of a run that is refused.
    case("train --graph none.h5 --metrics m --trace t", "m t", older("m", "t")), case(f"{TRAIN} --lr -1 --metrics m", "m", older("m")),
    case(f"{TRAIN} --save-weights none/w.h5 --metrics m", "m", older("m")),
    case("partition --input none -o o.h5 --metrics m --force", "m o.h5", older("m", "o.h5")),
    case("partition --input npy -o w.h5 --metrics m", "m w.h5", older("m")),
    case("evaluate --graph g.h5 --weights none --metrics m --predictions p.h5", "m p.h5", older("m", "p.h5")),
    case("evaluate --graph g.h5 --weights g.h5 --predictions p.csv", "p.csv", older("p.csv")),
    case("train --graph g.h5 --layers 2 --hidden 4 --epochs 3 --lr 1e38 --save-weights w.h5 --force", "w.h5", statuses=(1, 2)),
    # Older outputs, unasked.
    case(f"{TRAIN} --metrics m", "m", older("m")), case(f"{TRAIN} --trace t", "t", older("t")), case(f"{TRAIN} --save-weights w.h5", "w.h5"),
    case(f"{TRAIN} --save-weights v.h5 --eval-every 1", "v-best.h5", older("v-best.h5")), case("info --trace t", "t", older("t")),
    case(f"{TRAIN} --save-best b.h5 --save-weights b.h5"), case(f"{TRAIN} --save-best b.h5", "b.h5", older("b.h5")),
    case(f"{EVALUATE} --predictions p.csv", "p.csv", older("p.csv")), case("export-weights w.h5 -o s.safetensors", "s.safetensors", older("s.safetensors")),
    case("partition --input npy -o g.h5", "g.h5"), case("export g.h5 -o npy --format npy --force", "npy/x.npy"),
    case("bench spmm --vertices 50 --edges 100 --table t", "t", older("t")),
    # A temporary name that leads to something else.
    case("partition --input npy -o v.h5", "g.h5", symbolic("g.h5", "v.h5.partial", "v.h5.part"), (0, 2)),
    case(f"{TRAIN} --save-weights v.h5", "g.h5", symbolic("g.h5", "v.h5.partial", "v.h5.part"), (0, 2)),
    case("partition --input npy -o l.h5", "", symbolic("l.h5", "l.h5")),
    # Names that are too long for their temporary ones.
    case("partition --input npy -o " + "n" * 300), case(f"{EVALUATE} --predictions " + "n" * 251 + ".h5", statuses=(0, 2)),
    case(f"{TRAIN} --save-weights " + "n" * 252, statuses=(0, 2)), case("partition --input npy -o " + "n" * 250, statuses=(0, 2)),
    # Pipes and devices where files are wanted: nobody writes into a pipe here, so whoever opens it waits for ever.
    case("partition --input f.txt -o o.h5", "", pipe("f.txt")), case(PARTITION, "", pipe("npy/x.npy")),
    case("partition --input ogb -o o.h5", "", pipe("ogb/raw/node-feat.csv.gz")), case(PARTITION, "", pipe("npy/meta.json")),
    case(PARTITION, "", pipe("npy/train_idx.npy")), case("info f.h5", "", pipe("f.h5")),
    case("train --graph f.h5 --epochs 1", "", pipe("f.h5")), case(f"{EVALUATE[:-4]} f.h5", "", pipe("f.h5")),
    case(f"{TRAIN} --config f", "", pipe("f")), case(f"{TRAIN} --config /dev/zero"), case("info /dev/zero"),
    case("partition --input z.txt -o o.h5", "", symbolic("/dev/zero", "z.txt")), case("partition --input /dev/null -o o.h5"),
    case(f"{TRAIN} --metrics /dev/full", statuses=(1, 2)), case(f"{TRAIN} --trace /dev/full", statuses=(1, 2)),
    case(f"{TRAIN} --save-weights f", "", pipe("f")), case("partition --input npy -o f --force", "", pipe("f")),
    case(f"{EVALUATE} --predictions f.npy", "", pipe("f.npy")),
    case(f"{EVALUATE} --predictions p.h5", "", symbolic("/dev/full", "p.h5")),
]


def read(path):
    with open(path, "rb") as file:
        return file.read()


def try_case(program, source, case):
    folder = tempfile.mkdtemp(dir=os.path.dirname(source))
    shutil.copytree(source, folder, dirs_exist_ok=True)
    if case.prepare:
        case.prepare(folder)
    before = {name: read(os.path.join(folder, name)) for name in case.keep}
    status, text = program.run(1, *case.command.split(), folder=folder)
    problem = program.fault(status, text) if 1 not in case.statuses or status != 1 else None
    if problem is None and status not in case.statuses:
        problem = f"status {status}"
    for name, data in before.items():
        path = os.path.join(folder, name)
        if not os.path.isfile(path) or not read(path).startswith(data):
            problem = f"{problem or 'status ' + str(status)}, and {name} is destroyed"
    shutil.rmtree(folder)
    return f"{problem}: {program.gist(text)}" if problem else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=3)
    options = parser.parse_args()
    program = Program(options.program)
    cases = [case for case in CASES if options.only in case.command]
    failures = 0
    with tempfile.TemporaryDirectory(prefix="orthant_outputs_") as scratch:
        source = os.path.join(scratch, "source")
        for name in ("npy", "ogb"):
            graph_seeds.write_files(graph_seeds.make_seeds()[name], os.path.join(source, name))
        for command in ("partition --input npy -o g.h5", f"{TRAIN} --save-weights w.h5"):
            status, text = program.run(1, *command.split(), folder=source)
            if status != 0:
                sys.exit(f"{command}: status {status}\n{text}")
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for case, problem in zip(cases, pool.map(lambda case: try_case(program, source, case), cases)):
                if problem:
                    failures += 1
                    print(f"FAIL {case.command[:100]}: {problem}", flush=True)
    print(f"{len(cases)} cases, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
