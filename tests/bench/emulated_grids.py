#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predicted seconds of epochs against those of an emulated machine of four nodes, on 16 ranks that may share two cores.

emulated_grids.py --orthant PROGRAM [--work DIR]

Constants of the processor come from `bench machine` on one rank, nodes and links from the machine file below. Each configuration trains
with ORTHANT_EMULATE; the table has the median of its last epochs, in most of which all sparse products have tried their ways, beside what `orthant plan` says of it, and last what `auto` chooses.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile

RANKS = 16
NETWORK = """name = "cluster"
ranks_per_node = 4
[memory]
bytes_per_second = 1e10
source = "replaced by bench machine"
[dense_products]
fp32 = 1e10
of_16_bits = 1e10
source = "replaced by bench machine"
[sparse_products]
per_nonzero = [[16, 1e-9]]
source = "replaced by bench machine"
[launch]
seconds = 0
source = "replaced by bench machine"
[collectives]
call_seconds = 20e-6
step_seconds = 5e-6
inside = [[1, 2, 4e9], [2, 2, 4e9], [1, 4, 4e9]]
bytes_per_second_between_nodes = 3e9
source = "assumed: shared memory within nodes, a link of 25 Gbit/s per node"
"""
GRAPH = ["--kind", "rmat", "--vertices", "120000", "--edges", "1500000", "--features", "128", "--classes", "32", "--seed", "1"]
MODEL = ["--layers", "3", "--hidden", "128"]
LAST_EPOCHS = 8
CONFIGURATIONS = [("pmm3d", "1x4x2x2"), ("pmm3d", "1x2x4x2"), ("pmm3d", "1x16x1x1"), ("pmm3d", "1x1x4x4"), ("rows", "1x4x1x4"),
                  ("rows", "1x1x4x4"), ("rows", "1x16x1x1"), ("rows", "1x2x2x4")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orthant", required=True)
    parser.add_argument("--mpirun", default="mpirun --oversubscribe -n", help="and the number of ranks")
    parser.add_argument("--work", default=None, help="keeps graph and machine files here")
    parser.add_argument("--epochs", type=int, default=22)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = options.work or scratch
        os.makedirs(work, exist_ok=True)
        compare(options, work)


def run(words, **variables):
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | variables)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(words)}: {done.stderr}")
    return done.stdout


def compare(options, work):
    store, network, machine = (os.path.join(work, name) for name in ("graph.h5", "network.toml", "machine.toml"))
    if not os.path.exists(store):
        run([options.orthant, "generate", *GRAPH, "-o", work + "/graph"])
        run([options.orthant, "partition", "--input", work + "/graph", "-o", store])
    if not os.path.exists(machine):
        with open(network, "w", encoding="utf-8") as file:
            file.write(NETWORK)
        # In processor time, as emulated ranks are measured.
        run([options.orthant, "bench", "machine", "--network", network, "--name", "emulated", "--graph", store, "-o", machine],
            ORTHANT_EMULATE=network)
    planned = run([options.orthant, "plan", "--graph", store, "--widths", "128-128-128-32", "--ranks", str(RANKS), "--machine", machine,
                   "--least-width", "1", "--top", "1000", "--json"])
    plans = {(line["schedule"], line["grid"]): line for line in map(json.loads, planned.splitlines())}

    def virtual(*arguments):
        metrics = os.path.join(work, "metrics.jsonl")
        if os.path.exists(metrics):
            os.remove(metrics)
        run([*shlex.split(options.mpirun), str(RANKS), options.orthant, "train", "--graph", store, *MODEL, "--epochs", str(options.epochs),
             "--eval-every", "0", *arguments, "--metrics", metrics], ORTHANT_EMULATE=machine)
        with open(metrics, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        return lines[0], statistics.median(line["seconds"] for line in lines if line["event"] == "epoch" and line["epoch"] > options.epochs - LAST_EPOCHS)

    print("| schedule | grid | predicted ms | of that calls | virtual ms | error |\n|---|---|---|---|---|---|")
    fastest = None
    for schedule, grid in CONFIGURATIONS:
        gather = ["--gather", "all"] if schedule == "rows" else []
        _, seconds = virtual("--schedule", schedule, "--grid", grid, "--overlap", "off", *gather)
        plan = plans[(schedule, grid)]
        print(f"| {schedule} | {grid[2:]} | {1e3 * plan['seconds']:.1f} | {1e3 * sum(plan['call_seconds'].values()):.1f} | "
              f"{1e3 * seconds:.1f} | {100 * (plan['seconds'] / seconds - 1):+.1f} % |", flush=True)
        fastest = min(fastest or seconds, seconds)
    first, seconds = virtual("--overlap", "off")
    print(f"\nauto: {first['schedule']} {first['grid'][2:]}, {1e3 * seconds:.1f} virtual ms; the fastest above: {1e3 * fastest:.1f}")


if __name__ == "__main__":
    main()
