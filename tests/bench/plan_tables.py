#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of what training sends and holds on grids of which no rank exists, from `orthant plan` and counts alone.

plan_tables.py --orthant PROGRAM graphs     bytes and memory per rank for three graphs: the table of docs/planning.md
plan_tables.py --orthant PROGRAM arrays     every array per rank, by label, of two large graphs
plan_tables.py --orthant PROGRAM seconds    predicted epochs on two machines, beside what Plexus published: a table of README.md
"""

import argparse
import json
import subprocess

PAPERS = {"vertices": 111_059_956, "nonzeros": 1_726_745_828, "symmetric": "no", "widths": "128-128-128-172"}
GRAPHS = {
    "products": {"vertices": 2_449_029, "nonzeros": 126_167_053, "symmetric": "yes", "widths": "100-128-128-47"},
    "isolate-3-8M": {"vertices": 8_745_542, "nonzeros": 1_317_986_044, "symmetric": "yes", "widths": "128-128-128-32"},
    "papers100M": PAPERS,
}
# Milliseconds per epoch that Plexus published for Perlmutter (arXiv 2505.04083, figure 10), by number of GPUs.
PLEXUS = {
    "products": {4: 155.0, 16: 112.5, 64: 70.4, 256: 41.2, 512: 25.3},
    "isolate-3-8M": {16: 575, 64: 301, 256: 147, 1024: 65.9},
    "papers100M": {64: 2783, 256: 1357, 1024: 639, 2048: 536},
}
LARGE_GRAPHS = {
    "papers100M": PAPERS,
    "10^9 vertices": PAPERS | {"vertices": 10**9, "nonzeros": 20 * 10**9},
}
SCHEDULES = ("pmm3d", "rows")
# What a label belongs to, the first that it begins with; "orthant::models::" and "orthant::pmm::" left out.
STRUCTURES = {
    "features": ("features", "trained_features", "feature_gradient", "dropped_features"),
    "adjacency": ("csr/", "row_offsets", "columns", "values", "row_scale", "column_scale"),
    "activations": ("output", "aggregated", "activated", "inverse_rms", "passed", "projected", "logits"),
    "gradients of activations": ("gradient", "middle", "row_sums", "residual_gradient"),
    "workspace": ("workspace",),
    "parameters": ("weight", "bias", "norm_scale", "parameter"),
    "optimizer": ("first_moment", "second_moment", "num_steps", "step_"),
    "targets and loss": ("classes", "splits", "label_indicator", "RowLoss/"),
    "ids of vertices": ("original_ids",),
    "residuals": ("relayout",),
}


def plan(orthant, graph, ranks, *options):
    command = [orthant, "plan", "--json", "--dropout", "0", "--ranks", str(ranks), "--top", "1", *options]
    for name, value in graph.items():
        command += [f"--{name}", str(value)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {line["schedule"]: line for line in map(json.loads, done.stdout.splitlines())}


def megabytes(best):
    return f"{best['sent_bytes'] / 1e6:,.0f}"


def gigabytes(number):
    return f"{number / 1e9:,.2f}"


def three_digits(number):
    """10^9 bytes."""
    return f"{number / 1e9:.3g}"


def grid(best):
    return best["grid"].removeprefix("1x")


def print_graphs(orthant):
    print("| graph | ranks | pmm3d: grid | MB sent | GB | rows: grid | MB sent | GB | MB sent, bf16 |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, graph in GRAPHS.items():
        for ranks in (16, 64, 256, 1024, 2048):
            best = plan(orthant, graph, ranks)
            half = plan(orthant, graph, ranks, "--comm-dtype", "bf16")
            cells = [name, f"{ranks:,}"]
            for schedule in SCHEDULES:
                cells += [grid(best[schedule]), megabytes(best[schedule]), gigabytes(best[schedule]["array_bytes"])]
            print(f"| {' | '.join(cells)} | {megabytes(half['rows'])} |")


def fastest(orthant, graph, ranks, machine, *options):
    best = plan(orthant, graph, ranks, "--machine", machine, *options)
    return min(best.values(), key=lambda line: line["seconds"])


def milliseconds(best):
    return f"{1e3 * best['seconds']:.3g}"


def print_seconds(orthant):
    print("| graph | GPUs | Plexus, published | Perlmutter: grid | schedule | ms | ms, bf16 | H200 nodes: grid | schedule | ms |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, published in PLEXUS.items():
        for ranks, plexus in published.items():
            cells = [name, f"{ranks:,}", f"{plexus:g}"]
            for machine, options in (("perlmutter", ("--comm-dtype", "bf16")), ("h200-node", None)):
                best = fastest(orthant, GRAPHS[name], ranks, machine)
                cells += [grid(best), best["schedule"], milliseconds(best)]
                if options:
                    cells.append(milliseconds(fastest(orthant, GRAPHS[name], ranks, machine, *options)))
            print(f"| {' | '.join(cells)} |")


def structure_of(label):
    name = label.removeprefix("orthant::models::").removeprefix("orthant::pmm::")
    for structure, beginnings in STRUCTURES.items():
        if name.startswith(beginnings):
            return structure
    raise SystemExit(f"no structure has {label}")


def print_rows(columns, key, first_cells):
    labels = {label for best in columns for label in best[key]}
    for label in sorted(labels, key=lambda label: (first_cells(label), label)):
        sizes = [three_digits(best[key].get(label, 0)) for best in columns]
        print(f"| {first_cells(label)} | {label} | {' | '.join(sizes)} |")


def print_arrays(orthant):
    for name, graph in LARGE_GRAPHS.items():
        columns = []
        for ranks in (64, 512, 2048):
            best = plan(orthant, graph, ranks, "--arrays")
            columns += [best[schedule] for schedule in SCHEDULES]
        print(f"\n## {name}: {graph['vertices']:,} vertices, {graph['nonzeros']:,} non-zeros, a GCN {graph['widths']}\n")
        print(f"| structure | array | {' | '.join(best['schedule'] for best in columns)} |")
        print("|---|---|" + "---|" * len(columns))
        print(f"| ranks | | {' | '.join(format(best['ranks'], ',') for best in columns)} |")
        print(f"| grid | | {' | '.join(grid(best) for best in columns)} |")
        print(f"| MB sent per epoch | | {' | '.join(megabytes(best) for best in columns)} |")
        print_rows(columns, "arrays", structure_of)
        print(f"| all of these | | {' | '.join(three_digits(best['array_bytes']) for best in columns)} |")
        print_rows(columns, "loading_arrays", lambda _: "while the graph is read")
        print(f"| the most until the first step | | {' | '.join(three_digits(best['loading_bytes']) for best in columns)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orthant", default="build/bin/orthant")
    tables = {"graphs": print_graphs, "arrays": print_arrays, "seconds": print_seconds}
    parser.add_argument("table", choices=tuple(tables))
    arguments = parser.parse_args()
    tables[arguments.table](arguments.orthant)


if __name__ == "__main__":
    main()
