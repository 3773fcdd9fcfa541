# SPDX-License-Identifier: Apache-2.0
"""orthant partition and export, run as users run them.

partition_driver.py ORTHANT PART, where PART is
  round_trip NAME ..   data sets of $ORTHANT_DATA go raw -> store -> edge list from 1, 2, 3 and 4 ranks and
                       come back equal; h5diff finds no difference between the stores
  killed               SIGKILL at ten moments: the old file or none is there, never a half one
  full_disk            a small file system: one clear line, status 2, nothing left behind
  mistakes             options and files that are wrong
  chosen_order         --permute auto takes pieces of a mesh, leaves hubs in balanced blocks, and tells the gain
  metis                the assignment file, its cut and volume
  balance SEEDS        max/mean of the blocks, as --stats prints them, keep their bounds
  cells                balance and needed rows of the schedule rows, as --stats prints them, are the published ones
                       and those that train prints
"""
import gzip
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ORTHANT = sys.argv[1]
MPIRUN = os.environ.get("ORTHANT_MPIRUN", "mpirun --oversubscribe --bind-to none -n").split()
SKIPPED = 77


def command(ranks, *arguments):
    return [*MPIRUN, str(ranks), ORTHANT, *map(str, arguments)]


def run(ranks, *arguments, expect=0):
    done = subprocess.run(command(ranks, *arguments), capture_output=True, text=True, timeout=300)
    if done.returncode != expect:
        sys.exit(f"{arguments} on {ranks} ranks: status {done.returncode}, expected {expect}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def error_of(ranks, *arguments):
    """The one line that a mistake is answered with."""
    text = run(ranks, *arguments, expect=2)
    lines = [line for line in text.splitlines() if line.startswith("orthant: error:")]
    if len(lines) != 1:
        sys.exit(f"{arguments}: {len(lines)} error lines\n{text}")
    return lines[0]


def data_set(name):
    data = os.environ.get("ORTHANT_DATA", "")
    path = os.path.join(data, "datasets", name)
    if not data or not os.path.isdir(path):
        print(f"no data set {name}: set ORTHANT_DATA")
        sys.exit(SKIPPED)
    return path


def edges_of_raw(folder, is_directed):
    """Edges as a set, weights none; undirected ones from the smaller id to the larger."""
    edges = set()
    with gzip.open(os.path.join(folder, "raw", "edge.csv.gz"), "rt") as file:
        for line in file:
            source, target = map(int, line.split(","))
            edges.add((source, target) if is_directed or source <= target else (target, source))
    return edges


def edges_of_export(folder):
    edges = []
    with open(os.path.join(folder, "edges.txt")) as file:
        for line in file:
            if not line.startswith("#"):
                source, target = line.split()[:2]
                edges.append((int(source), int(target)))
    if edges != sorted(set(edges)):
        sys.exit("the exported edges are not a sorted set")
    return set(edges)


def round_trip(names, scratch):
    has_h5diff = shutil.which("h5diff") is not None
    for name in names:
        folder = data_set(name)
        for is_directed in (False, True) if name in ("slashdot0902", "arxiv_2023") else (False,):
            expected = edges_of_raw(folder, is_directed)
            flags = ["--directed"] if is_directed else []
            stores = []
            for ranks in (1, 2, 3, 4):
                store = os.path.join(scratch, f"{name}{ranks}.h5")
                run(ranks, "partition", "--input", folder, "-o", store, "--force", *flags)
                stores.append(store)
                back = os.path.join(scratch, "back")
                shutil.rmtree(back, ignore_errors=True)
                run(ranks, "export", store, "-o", back, "--format", "edgelist")
                if edges_of_export(back) != expected:
                    sys.exit(f"{name} from {ranks} ranks came back different")
            if "all right" not in run(2, "info", stores[-1], "--verify"):
                sys.exit(f"{name}: checksums")
            # What was exported can be partitioned again, into the same matrix.
            again = os.path.join(scratch, "again.h5")
            run(2, "partition", "--input", back, "-o", again, "--force", *flags)
            for store in stores[1:]:
                if has_h5diff and subprocess.run(["h5diff", stores[0], store], capture_output=True).returncode != 0:
                    sys.exit(f"{name}: h5diff finds a difference between {stores[0]} and {store}")
            if has_h5diff:
                groups = ["/topology", "/vertices"]
                for group in groups:
                    if subprocess.run(["h5diff", stores[0], again, group], capture_output=True).returncode != 0:
                        sys.exit(f"{name}: {group} differs after export and import")
            for store in stores:
                os.remove(store)


def write_edges(path, num_vertices, num_edges, seed=1):
    draw = random.Random(seed)
    with open(path, "w") as file:
        for _ in range(num_edges):
            file.write(f"{draw.randrange(num_vertices)} {draw.randrange(num_vertices)}\n")


def killed(scratch):
    graph = os.path.join(scratch, "graph.txt")
    write_edges(graph, 50_000, 400_000)
    store = os.path.join(scratch, "graph.h5")
    begin = time.monotonic()
    run(2, "partition", "--input", graph, "-o", store)
    seconds = time.monotonic() - begin
    with open(store, "rb") as file:
        old = file.read()
    num_killed = 0
    for attempt in range(30):
        if num_killed == 10:
            break
        has_old = attempt % 2 == 0
        if not has_old and os.path.exists(store):
            os.remove(store)
        elif has_old:
            with open(store, "wb") as file:
                file.write(old)
        job = subprocess.Popen(command(2, "partition", "--input", graph, "-o", store, "--force", "--seed", 9),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        time.sleep(seconds * (0.3 + 0.07 * (attempt % 10)))
        try:
            for child in children_of(job.pid):
                os.kill(child, signal.SIGKILL)
            os.kill(job.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        if job.wait() != 0:
            num_killed += 1
        else:
            seconds *= 0.8  # the machine is less busy than it was when the time was taken
        if not os.path.exists(store):
            if has_old:
                sys.exit("the old file is gone")
            continue
        with open(store, "rb") as file:
            is_old = file.read() == old
        if not is_old and "all right" not in run(1, "info", store, "--verify"):
            sys.exit("a half file was left")
    if num_killed < 10:
        sys.exit(f"only {num_killed} of 30 jobs were still running when they were killed: the test shows nothing")
    run(2, "partition", "--input", graph, "-o", store, "--force")  # what was left behind is not in the way
    with open(store, "rb") as file:
        if file.read(4) != old[:4]:
            sys.exit("no store after the last run")


def children_of(pid):
    """Of this process and theirs, children first."""
    found = []
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            for child in map(int, file.read().split()):
                found += children_of(child) + [child]
    except OSError:
        pass
    return found


def full_disk(scratch):
    graph = os.path.join(scratch, "graph.txt")
    write_edges(graph, 20_000, 400_000)
    disk = os.path.join(scratch, "disk")
    os.mkdir(disk)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True).returncode != 0:
        print("may not mount a small file system here")
        sys.exit(SKIPPED)
    try:
        for ranks in (1, 3):
            # Four MB of matrix: more than there is, less than what the first estimate refuses.
            line = error_of(ranks, "partition", "--input", graph, "-o", os.path.join(disk, "graph.h5"))
            if "disk" not in line and "fit" not in line:
                sys.exit(f"unclear: {line}")
            if os.listdir(disk):
                sys.exit(f"left behind: {os.listdir(disk)}")
        small = os.path.join(scratch, "small.txt")
        write_edges(small, 1000, 5000)
        run(2, "partition", "--input", small, "-o", os.path.join(disk, "small.h5"))
        run(2, "info", os.path.join(disk, "small.h5"), "--verify")
    finally:
        subprocess.run(["umount", disk], check=True)


def mistakes(scratch):
    graph = os.path.join(scratch, "graph.txt")
    write_edges(graph, 100, 500)
    store = os.path.join(scratch, "graph.h5")
    run(2, "partition", "--input", graph, "-o", store)
    expectations = [
        (("partition", "--input", graph, "-o", store), "--force"),
        (("partition", "--input", os.path.join(scratch, "none"), "-o", store, "--force"), "none"),
        (("partition", "--input", graph, "-o", os.path.join(scratch, "no", "dir.h5")), "No such file"),
        (("partition", "--input", graph, "-o", store, "--force", "--random-split", "0.5,0.5"), "three fractions"),
        (("partition", "--input", graph, "-o", store, "--force", "--permute", "triple"), "triple"),
        (("partition", "--input", graph, "-o", store, "--force", "--metis", "1000"), "vertices"),
        (("info", graph), "HDF5"),
        (("info", os.path.join(scratch, "none.h5")), "No such file"),
        (("export", graph, "-o", os.path.join(scratch, "out")), "HDF5"),
    ]
    for arguments, part in expectations:
        for ranks in (1, 3):
            line = error_of(ranks, *arguments)
            if part not in line:
                sys.exit(f"{arguments}: '{part}' is not in: {line}")
    text = run(2, "info", store)  # still the first one
    if "vertices    100" not in text:
        sys.exit(text)


def table_of(text, schedule, grid="8x8"):
    """Numbers of that grid by permutation: [balance], with the schedule rows also needed by gather and by sum."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith(f"schedule {schedule}:"):
            break
    grids = next(lines).split()[1:]
    table = {}
    for line in lines:
        words = line.split()
        if words[0] not in ("none", "single", "double", "cluster", "pieces"):
            break
        width = (len(words) - 1) // len(grids)
        begin = 1 + grids.index(grid) * width
        table[words[0]] = [float(word) for word in words[begin:begin + width]]
    return table


def imbalance_of(text):
    return {kind: balance for kind, (balance,) in table_of(text, "pmm3d").items()}


def balance(scratch, num_seeds):
    store = os.path.join(scratch, "graph.h5")
    rows = imbalance_of(run(2, "partition", "--input", data_set("road_luxembourg"), "-o", store, "--force", "--stats"))
    print("road_luxembourg", rows)
    if not (rows["none"] > 5 and rows["single"] > 2 and rows["double"] <= 1.05):
        sys.exit("road_luxembourg: double permutation must be within 1.05")
    if not abs(rows["cluster"] - rows["double"]) <= 0.02:
        sys.exit("road_luxembourg: cluster must be within 0.02 of double")
    for seed in range(num_seeds):
        rows = imbalance_of(run(2, "partition", "--input", data_set("slashdot0902"), "-o", store, "--force", "--stats",
                                "--seed", seed))
        print("slashdot0902", seed, rows)
        if not rows["double"] <= 1.07:
            sys.exit("slashdot0902: double permutation must be within 1.07")


# 8x8 blocks, from a simulation in another language. Balance of pmm3d: natural order, one random order; then of rows:
# cells of a random order, dealt by degree, of the natural order. Needed rows: random order; natural order, by gather
# and by sum (there, cells were cut over a first, and not over c; so the two are exchanged here).
PUBLISHED = {
    "arxiv_2023": ((7.13, 1.47), (1.10, 1.05, 2.12), 0.68, (0.41, 0.59)),
    "coauthor_physics": ((1.70, 1.51), (1.05, 1.02, 1.14), 0.69, (0.67, 0.69)),
    "delaunay_n16": ((6.25, 2.01), (1.02, 1.02, 1.75), 0.54, (0.15, 0.16)),
    "road_luxembourg": ((7.86, 3.28), (1.03, 1.03, 1.06), 0.24, (0.02, 0.02)),
}
# Pieces: most balance, most rows needed by gather and by sum.
PIECES = {
    "arxiv_2023": (1.3, 0.32, 0.46),
    "coauthor_physics": (1.2, 0.25, 0.38),
    "delaunay_n16": (1.05, 0.01, 0.03),
    "road_luxembourg": (1.02, 0.005, 0.01),
}


def cells(scratch):
    store = os.path.join(scratch, "graph.h5")
    for name, (pmm3d, balances, random_share, natural_shares) in PUBLISHED.items():
        text = run(2, "partition", "--input", data_set(name), "-o", store, "--force", "--stats", "--permute", "pieces",
                   "--random-features", 3, "--random-labels", 2, "--random-split", "0.5,0.2,0.3")
        blocks, rows = table_of(text, "pmm3d"), table_of(text, "rows")
        print(name, blocks, rows)
        found = [blocks["none"][0], rows["double"][0], rows["none"][0], blocks["single"][0], rows["single"][0]]
        published = [pmm3d[0], *balances[1:], pmm3d[1], balances[0]]
        # Both "single" are a random draw each: seven seeds spread over 0.08 on arxiv_2023.
        if any(abs(a - b) > most for a, b, most in zip(found, published, [0.02, 0.02, 0.02, 0.04, 0.04])):
            sys.exit(f"{name}: balance {found} is not {published}")
        shares = [*rows["single"][1:], *rows["none"][1:]]
        if any(abs(a - b) > 0.01 for a, b in zip(shares, [random_share, random_share, *natural_shares])):
            sys.exit(f"{name}: {shares} of the rows are needed, not {random_share}, {natural_shares}")
        if any(a > b for a, b in zip(rows["pieces"], PIECES[name])):
            sys.exit(f"{name}: pieces have {rows['pieces']}, more than {PIECES[name]}")
        # Training finds the same shares, which it counts from blocks of its own.
        gather, reduce = table_of(text, "rows", "2x2")["pieces"][1:]
        text = run(4, "train", "--graph", store, "--grid", "1x2x1x2", "--schedule", "rows", "--gather", "needed",
                   "--epochs", 1, "--layers", 2, "--hidden", 4)
        for axis, share in (("z", gather), ("x", reduce)):
            if f"needed rows along {axis} (coverage {share:.3f})" not in text:
                sys.exit(f"{name}: {share} along {axis} is not in:\n{text}")


def chosen_order(scratch):
    store = os.path.join(scratch, "graph.h5")
    meshes = ["--generate", "grid2d", "--vertices", 10000]
    hubs = ["--generate", "rmat", "--vertices", 4096, "--edges", 120000]
    for graph, order in ((meshes, "pieces"), (hubs, "double")):
        for ranks in (1, 3):
            text = run(ranks, "partition", *graph, "-o", store, "--force", "--permute", "auto")
            if f"order        {order};" not in text or "non-zeros of A+I" in text:
                sys.exit(f"{graph} on {ranks} ranks: {order} was not chosen, or tables are printed:\n{text}")
            if f"permutation {order}," not in run(1, "info", store):
                sys.exit(f"{graph} on {ranks} ranks: the store does not have the order {order}")
    text = run(1, "partition", *meshes, "-o", store, "--force", "--permute", "auto", "--stats")
    costs = {line.split()[0]: line.split()[1:] for line in text[text.index("gathered anew"):].splitlines()[1:6]}
    if set(costs) != {"none", "single", "double", "cluster", "pieces"}:
        sys.exit(f"costs of {set(costs)}:\n{text}")
    gain = float(costs["pieces"][1]) / float(costs["double"][1])
    if f"expected to be {gain:.2f} of that of double" not in text or not 0.5 < gain < 0.9:
        sys.exit(f"{gain} is not told:\n{text}")


def metis(scratch):
    store = os.path.join(scratch, "cora.h5")
    folder = data_set("cora")
    edges = edges_of_raw(folder, False)
    parts = []
    for ranks in (1, 3):
        text = run(ranks, "partition", "--input", folder, "-o", store, "--force", "--metis", 8)
        with open(os.path.join(scratch, "cora.metis8.txt")) as file:
            parts.append([int(line) for line in file])
        cut = sum(parts[-1][a] != parts[-1][b] for a, b in edges)
        halo = len({(a, parts[-1][b]) for a, b in edges if parts[-1][a] != parts[-1][b]} |
                   {(b, parts[-1][a]) for a, b in edges if parts[-1][a] != parts[-1][b]})
        if f"cut {cut} edges, communication volume {halo} vertices" not in text:
            sys.exit(f"cut {cut} and volume {halo} are not in:\n{text}")
    if parts[0] != parts[1]:
        sys.exit("the assignment depends on the number of ranks")
    if len(parts[0]) != 2708 or set(parts[0]) != set(range(8)) or cut > 1000:
        sys.exit(f"odd assignment: {len(parts[0])} lines, cut {cut}")


def main():
    part, names = sys.argv[2], sys.argv[3:]
    with tempfile.TemporaryDirectory(prefix="orthant-") as scratch:
        if part == "round_trip":
            round_trip(names, scratch)
        else:
            {"killed": killed, "full_disk": full_disk, "mistakes": mistakes, "metis": metis, "cells": cells, "chosen_order": chosen_order,
             "balance": lambda folder: balance(folder, int(names[0]))}[part](scratch)


main()
