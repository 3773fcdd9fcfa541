#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# The command line as a user meets it, on one rank without mpirun and on several with it: cli.py PROGRAM PART.

import concurrent.futures
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time

PROGRAM = sys.argv[1]
MPIRUN = os.environ["ORTHANT_MPIRUN"].split()
LIMIT = 90  # seconds after which a run counts as hung
COMMANDS = ["generate", "partition", "export", "train", "evaluate", "plan", "train-lm", "bench collectives", "bench spmm",
            "bench gemm", "bench epoch", "info"]
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("ORTHANT_")}


class Failure(Exception):
    pass


def run(ranks, arguments, **variables):
    command = ([] if ranks == 1 else MPIRUN + [str(ranks)]) + [PROGRAM] + arguments
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT,
                              env=ENVIRONMENT | variables)
    except subprocess.TimeoutExpired as hung:
        raise Failure(f"still running after {LIMIT} s\n{hung.stdout}\n{hung.stderr}") from None


def require(condition, what, done):
    if not condition:
        raise Failure(f"{what}; status {done.returncode}\nstdout: {done.stdout}\nstderr: {done.stderr}")


def expect_success(ranks, arguments, **variables):
    done = run(ranks, arguments, **variables)
    require(done.returncode == 0, "does not end well", done)
    require("orthant: error" not in done.stderr, "speaks of an error", done)
    return done


def expect_mistake(ranks, arguments, pattern, **variables):
    """One line, status 2, ranks that leave by themselves."""
    done = run(ranks, arguments, **variables)
    require(done.returncode == 2, "is no mistake of status 2", done)
    errors = re.findall(r"^orthant: error: (.*)$", done.stderr, re.M)
    require(len(errors) == 1, f"{len(errors)} lines of error, not one", done)
    require(re.search(pattern, errors[0]), f"lacks /{pattern}/", done)
    require("MPI_ABORT" not in done.stderr, "was aborted", done)
    require(done.stdout == "", "prints to stdout", done)


def help_of(ranks, command):
    done = expect_success(ranks, command.split() + ["--help"])
    require(done.stdout.count(f"Usage: orthant {command} ") == 1, "does not print its usage once", done)
    for flag in ("--help", "--config", "--metrics", "--trace", "--timeout", "--log-level"):
        require(len(re.findall(rf"[ ,]{flag} ", done.stdout)) == 1, f"{flag} is not in the help once", done)


def overview(ranks):
    for word in ("--help", "-h"):
        done = expect_success(ranks, [word])
        for command in COMMANDS:
            require(len(re.findall(rf"^  {command} ", done.stdout, re.M)) == 1, f"{command} is not listed once", done)
    done = expect_success(ranks, ["bench", "--help"])
    require("bench collectives" in done.stdout, "does not list the benchmarks", done)


def version(ranks):
    done = expect_success(ranks, ["--version"])
    require(re.match(r"orthant \d+\.\d+\.\d+ \(.+\)\n", done.stdout), "no version", done)
    for backend in ("Kokkos", "products", "BLAS", "processor", "MPI", "NCCL", "HDF5", "build"):
        require(len(re.findall(rf"^{backend} +\S", done.stdout, re.M)) == 1, f"{backend} is not named once", done)


def info(ranks):
    done = expect_success(ranks, ["info", "--kokkos-threads=1"])
    require(f"ranks       {ranks} on 1 host\n" in done.stdout, "miscounts the ranks", done)
    table = done.stdout.split("\n\n")[1].splitlines()
    require(table[0].split() == ["rank", "host", "cores", "numa", "device"], "has no table", done)
    require([line.split()[0] for line in table[1:]] == [str(rank) for rank in range(ranks)], "lacks ranks", done)


def bench_lines(ranks, arguments, of="collectives", **variables):
    done = expect_success(ranks, ["bench", of] + arguments, **variables)
    try:
        return [json.loads(line) for line in done.stdout.splitlines()]
    except json.JSONDecodeError as error:
        raise Failure(f"not JSON: {error}\n{done.stdout}") from None


def bench(ranks):
    lines = bench_lines(ranks, ["--sizes", "4:64K", "--repeat", "3"])
    sizes = [line["bytes"] for line in lines if line["operation"] == "all_reduce"]
    if sizes != [4, 16, 64, 256, 1024, 4096, 16384, 65536]:
        raise Failure(f"sizes {sizes}")
    operations = {line["operation"] for line in lines}
    expected = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "barrier"}
    if operations != expected | ({"send_receive"} if ranks > 1 else set()):
        raise Failure(f"operations {operations}")
    for line in lines:
        if not (line["axis"] == "world" and line["ranks"] == ranks and line["repeats"] == 3):
            raise Failure(f"odd line {line}")
        if not (line["seconds"] >= line["min_seconds"] > 0 and line["bare_seconds"] >= line["bare_min_seconds"] > 0):
            raise Failure(f"odd seconds {line}")
        overhead = (line["seconds"] - line["bare_seconds"]) * 1e6
        if abs(overhead - line["overhead_us"]) > 1e-6 + 1e-9 * abs(overhead):
            raise Failure(f"overhead does not fit the seconds: {line}")


def bench_grid(ranks):
    grid = "1x2x2x1" if ranks == 4 else "1x1x1x1"
    lines = bench_lines(ranks, ["--grid", grid, "--sizes", "1K", "--repeat", "2", "--operations", "all_reduce,barrier"])
    seen = [(line["axis"].lower(), line["ranks"], line["operation"], line["grid"]) for line in lines]
    axes = [("x", 2), ("y", 2)] if ranks == 4 else [("x", 1)]
    if seen != [axis + (operation, grid) for axis in axes for operation in ("all_reduce", "barrier")]:
        raise Failure(f"lines {seen}")


TINY_ROOFLINE = ["--stream-mib", "1", "--gemm-size", "32"]


def require_close(line, key, expected):
    if abs(line[key] - expected) > 1e-9 * abs(expected):
        raise Failure(f"{key} is {line[key]}, not {expected}: {line}")


def require_rates(line, ranks, bench_name):
    """What every line of a kernel's benchmark has, and that its figures fit one another."""
    if (line["bench"], line["ranks"]) != (bench_name, ranks):
        raise Failure(f"odd line {line}")
    if not (line["seconds"] >= line["min_seconds"] > 0 and line["stream_gb_per_s"] > 0 and line["gemm_gflop_per_s"] > 0
            and line["fma_gflop_per_s"] > 0):
        raise Failure(f"odd figures {line}")
    require_close(line, "library_share", line["gemm_gflop_per_s"] / arithmetic(line))


def arithmetic(line):
    return max(line["fma_gflop_per_s"], line["gemm_gflop_per_s"])


def roofline_seconds(line, num_bytes, flops):
    return max(num_bytes / line["stream_gb_per_s"], flops / arithmetic(line)) * 1e-9


def spmm(ranks, dtype, number_bytes):
    vertices, edges = 200, 1000
    lines = bench_lines(ranks, ["--vertices", str(vertices), "--edges", str(edges), "--widths", "1,5,16", "--repeat", "2",
                                "--forms", "product,transposed", "--dtype", dtype] + TINY_ROOFLINE, of="spmm")
    if [(line["form"], line["width"]) for line in lines] != [(form, width) for form in ("product", "transposed")
                                                             for width in (1, 5, 16)]:
        raise Failure(f"lines {lines}")
    nonzeros = lines[0]["nonzeros"]
    if not (vertices < nonzeros <= 2 * edges + vertices and lines[0]["symmetric"]):
        raise Failure(f"{nonzeros} non-zeros of a symmetric graph with {edges} edges")
    for line in lines:
        require_rates(line, ranks, "spmm")
        width, seconds = line["width"], line["seconds"]
        if (line["nonzeros"], line["repeats"], line["dtype"]) != (nonzeros, 2, dtype):
            raise Failure(f"odd line {line}")
        # Rows are split over the ranks; columns, or rows of the transpose, are all there on each.
        ends = vertices + ranks * vertices
        offsets = (vertices if line["form"] == "product" else ranks * vertices) + ranks
        require_close(line, "gathered_bytes", nonzeros * width * number_bytes)
        require_close(line, "compulsory_bytes", 8 * offsets + 4 * nonzeros + ends * number_bytes * (1 + width))
        require_close(line, "gflop_per_s", 2e-9 * nonzeros * width / seconds)
        for kind in ("gathered", "compulsory"):
            require_close(line, kind + "_gb_per_s", line[kind + "_bytes"] * 1e-9 / seconds)
            require_close(line, kind + "_share", line[kind + "_gb_per_s"] / line["stream_gb_per_s"])


def spmm_graphs(ranks):
    """Non-zeros: both directions of every edge and a self loop a vertex; --directed one direction."""
    few = ["--widths", "4", "--repeat", "1"] + TINY_ROOFLINE
    (line,) = bench_lines(ranks, ["--kind", "ring", "--vertices", "50", "--edges", "50"] + few, of="spmm")
    if line["nonzeros"] != 150:
        raise Failure(f"a ring {line}")
    grid = "1x1x2x1" if ranks == 2 else "1x1x1x1"
    (line,) = bench_lines(ranks, ["--vertices", "300", "--edges", "400", "--directed", "--permute", "double", "--grid", grid]
                          + few, of="spmm")
    if not 300 <= line["nonzeros"] <= 700 or line["symmetric"] or (line["grid"], line["permutation"]) != (grid, "double"):
        raise Failure(f"a directed graph {line}")


# Of one vertex: layers 6 -> 8 (aggregates first) and 8 -> 3 (transforms first), no gradient of the features.
GEMM_FLOPS = 2 * (2 * 6 * 8 + 3 * 8 * 3)


def gemm(ranks, dtype, number_bytes):
    rows = 50
    lines = bench_lines(ranks, ["--rows", str(rows), "--widths", "6-8-3", "--repeat", "2", "--dtype", dtype] + TINY_ROOFLINE,
                        of="gemm")
    *products, total = lines
    expected = [(0, "Q = H W", "product", "NN"), (1, "U = F W", "product", "NN"), (1, "dF = dU W^T", "left_grad", "NT"),
                (1, "dW = F^T dU", "right_grad", "TN"), (0, "dW = H^T dQ", "right_grad", "TN")]
    if [(line["layer"], line["product"], line["form"], line["transposes"]) for line in products] != expected:
        raise Failure(f"products {products}")
    shapes = [(line["m"], line["n"], line["k"]) for line in products]
    if ranks == 1 and shapes != [(rows, 8, 6), (rows, 3, 8), (rows, 8, 3), (8, 3, rows), (6, 8, rows)]:
        raise Failure(f"shapes {shapes}")
    for line in lines:
        require_rates(line, ranks, "gemm")
        require_close(line, "ratio", line["seconds"] / line["bare_seconds"])
        require_close(line, "gflop_per_s", line["flops"] * 1e-9 / line["seconds"])
        require_close(line, "gb_per_s", line["bytes"] * 1e-9 / line["seconds"])
        require_close(line, "stream_share", line["gb_per_s"] / line["stream_gb_per_s"])
        require_close(line, "gemm_share", line["gflop_per_s"] / line["gemm_gflop_per_s"])
        require_close(line, "arithmetic_share", line["gflop_per_s"] / arithmetic(line))
    for line, (m, n, k) in zip(products, shapes):
        require_close(line, "share", roofline_seconds(line, line["bytes"], line["flops"]) / line["seconds"])
        if ranks == 1:
            require_close(line, "flops", 2 * m * n * k)
            require_close(line, "bytes", number_bytes * (m * k + k * n + m * n))
    require_close(total, "flops", rows * GEMM_FLOPS)
    for key in ("seconds", "bare_seconds", "bytes", "flops"):
        require_close(total, key, sum(line[key] for line in products))


def epoch(ranks, grid, arguments, widths, gemm_flops):
    """`widths` of all sparse products together. Work does not depend on the grid; bytes are those of training."""
    vertices, number_bytes = 60, 8 if "fp64" in arguments else 4
    run_of = ["--dataset", f"sbm:vertices={vertices},edges=300,features=6,classes=3", "--layers", "2", "--hidden", "8",
              "--grid", grid] + arguments
    (line,) = bench_lines(ranks, run_of + ["--epochs", "3"] + TINY_ROOFLINE, of="epoch")
    require_rates(line, ranks, "epoch")
    nonzeros = line["nonzeros"]
    require_close(line, "ratio", line["seconds"] / line["bare_seconds"])
    require_close(line, "gemm_flops", vertices * gemm_flops)
    require_close(line, "spmm_flops", 2 * nonzeros * widths)
    require_close(line, "spmm_gathered_bytes", nonzeros * widths * number_bytes)
    require_close(line, "share", line["roofline_seconds"] / line["seconds"])
    require_close(line, "gemm_arithmetic_share", line["gemm_flops"] * 1e-9 / line["bare_gemm_seconds"] / arithmetic(line))
    for kind in ("spmm", "gemm"):
        of_kind = [row for row in line["products"] if row["kind"] == kind]
        require_close(line, kind + "_flops", sum(row["flops"] for row in of_kind))
        require_close(line, kind + "_bytes", sum(row["bytes"] for row in of_kind))
    for row in line["products"]:
        require_close(row, "share", roofline_seconds(line, row["bytes"], row["flops"]) / row["seconds"])
    if not (0 < line["phases_share"] <= 1 and line["bare_seconds"] >= line["bare_min_seconds"] > 0):
        raise Failure(f"odd figures {line}")
    # A device replays epochs without dropout as a whole.
    if not {"forward", "backward", "loss", "optimizer"} <= set(line["phases"]) and set(line["phases"]) != {"step"}:
        raise Failure(f"phases {line['phases']}")
    if "device_memory_bytes" in line and not (line["device_memory_bytes"] > 0 and line["device_memory_predicted_bytes"] > 0):
        raise Failure(f"memory of a device {line}")
    if not line["peak_memory_bytes"] >= line["memory_per_rank_bytes"] > 0:
        raise Failure(f"memory {line}")
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "run.jsonl")
        expect_success(ranks, ["train"] + run_of + ["--epochs", "2", "--metrics", metrics])
        with open(metrics, encoding="utf-8") as file:
            trained = [event for event in map(json.loads, file) if event["event"] == "epoch"][-1]
    if line["comm_bytes"] != trained["comm_bytes"] or (ranks == 1) != (line["comm_bytes"] == 0):
        raise Failure(f"{line['comm_bytes']} bytes are communicated, in training {trained['comm_bytes']}")
    if set(line["phases"]) != set(trained["phases"]):
        raise Failure(f"phases {line['phases']}, in training {trained['phases']}")


def epoch_of(ranks, arguments, widths, gemm_flops=GEMM_FLOPS):
    for grid in ["1x1x1x1"] if ranks == 1 else ["1x2x1x1", "1x1x2x1", "1x1x1x2"]:
        epoch(ranks, grid, arguments, widths, gemm_flops)


def write_npy(path, kind, shape, values):
    header = repr({"descr": kind, "fortran_order": False, "shape": shape})
    header += " " * ((-len(header) - 11) % 64) + "\n"
    code = {"<i8": "q", "<f4": "f"}[kind]
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        file.write(struct.pack(f"<{len(values)}{code}", *values))


def sparse_features(ranks):
    """Products with sparse features count as sparse ones."""
    vertices, features, classes = 8, 6, 3
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "graph.h5")
        ids = list(range(vertices))
        write_npy(folder + "/edge_index.npy", "<i8", (2, vertices), ids + ids[1:] + ids[:1])
        write_npy(folder + "/x_indptr.npy", "<i8", (vertices + 1,), [2 * v for v in range(vertices + 1)])
        write_npy(folder + "/x_indices.npy", "<i8", (2 * vertices,), [c for v in ids for c in (v % 5, 5)])
        write_npy(folder + "/x_data.npy", "<f4", (2 * vertices,), [1] * (2 * vertices))
        write_npy(folder + "/x_shape.npy", "<i8", (2,), [vertices, features])
        expect_success(1, ["partition", "--input", folder, "-o", store, "--random-labels", str(classes),
                           "--random-split", "0.5,0.25,0.25"])
        for dropout in ("0", "0.5"):
            (line,) = bench_lines(ranks, ["--graph", store, "--layers", "1", "--epochs", "1", "--dropout", dropout]
                                  + TINY_ROOFLINE, of="epoch")
            if [(row["product"], row["kind"]) for row in line["products"]] != [
                    ("U = F W", "spmm"), ("Q = A U", "spmm"), ("dU = A^T dQ", "spmm"), ("dW = F^T dU", "spmm")]:
                raise Failure(f"products {line['products']}")
            require_close(line, "spmm_flops", 2 * 2 * (2 * vertices + 3 * vertices) * classes)
            require_close(line, "gemm_flops", 0)
            require_close(line, "bare_gemm_seconds", 0)
        expect_mistake(ranks, ["bench", "gemm", "--graph", store, "--layers", "1"], r"has no dense products")


def bench_store(ranks):
    """A store in place of a graph made on the spot."""
    with tempfile.TemporaryDirectory() as folder:
        source, store = os.path.join(folder, "ring"), os.path.join(folder, "ring.h5")
        expect_success(1, ["generate", "--kind", "ring", "--vertices", "40", "--features", "6", "--classes", "3", "-o", source])
        expect_success(1, ["partition", "--input", source, "-o", store])
        (line,) = bench_lines(ranks, ["--graph", store, "--widths", "3", "--repeat", "1"] + TINY_ROOFLINE, of="spmm")
        require_close(line, "nonzeros", 120)
        *_, line = bench_lines(ranks, ["--graph", store, "--layers", "2", "--hidden", "8", "--repeat", "1"] + TINY_ROOFLINE,
                               of="gemm")
        require_close(line, "flops", 40 * GEMM_FLOPS)
        (line,) = bench_lines(ranks, ["--graph", store, "--layers", "2", "--hidden", "8", "--epochs", "1"] + TINY_ROOFLINE,
                              of="epoch")
        require_close(line, "nonzeros", 120)


def precedence(ranks):
    """flag > environment > file > default, and the metrics say so."""
    with tempfile.TemporaryDirectory() as folder:
        config, metrics = os.path.join(folder, "run.toml"), os.path.join(folder, "run.jsonl")
        with open(config, "w", encoding="utf-8") as file:
            file.write('sizes = "64"\n[bench.collectives]\nrepeat = 7\noperations = ["all_reduce", "barrier"]\n')
        few = ["--config", config]
        for arguments, variables, repeats, source in (
                (few, {}, 7, "config"),
                (few, {"ORTHANT_REPEAT": "5"}, 5, "environment"),
                (few + ["--repeat", "3"], {"ORTHANT_REPEAT": "5"}, 3, "flag")):
            if os.path.exists(metrics):
                os.remove(metrics)  # a run adds to what is there
            lines = bench_lines(ranks, arguments + ["--metrics", metrics], **variables)
            if [(line["operation"], line["repeats"]) for line in lines] != [("all_reduce", repeats), ("barrier", repeats)]:
                raise Failure(f"{source}: {lines}")
            with open(metrics, encoding="utf-8") as file:
                events = [json.loads(line) for line in file]
            first = events[0]
            if (first["event"], first["command"], first["ranks"]) != ("run", "bench collectives", ranks):
                raise Failure(f"first line {first}")
            if first["configuration"]["repeat"] != repeats or first["sources"]["repeat"] != source:
                raise Failure(f"configuration {first}")
            if [event["event"] for event in events[1:]] != ["bench", "bench"]:
                raise Failure(f"events {events}")


def gemm_math(ranks):
    """--gemm-math by flag, environment and file: in the metrics where this build has it, else one line and status 2."""
    known = re.search(r"^products +(.*)$", expect_success(1, ["--version"]).stdout, re.M).group(1).split(", ")
    if known not in (["fp32"], ["fp32", "tf32", "bf16"]):
        raise Failure(f"products in {known}")
    few = ["train", "--dataset", "karate", "--epochs", "1"]
    with tempfile.TemporaryDirectory() as folder:
        config, metrics = os.path.join(folder, "run.toml"), os.path.join(folder, "run.jsonl")
        for math in ("fp32", "tf32", "bf16"):
            with open(config, "w", encoding="utf-8") as file:
                file.write(f'gemm-math = "{math}"\n')
            for arguments, variables in ((["--gemm-math", math], {}), ([], {"ORTHANT_GEMM_MATH": math}),
                                         (["--config", config], {})):
                if math not in known:
                    expect_mistake(ranks, few + arguments, rf"--gemm-math {math} needs a build for CUDA devices.*leave it out",
                                   **variables)
                    continue
                if os.path.exists(metrics):
                    os.remove(metrics)
                expect_success(ranks, few + arguments + ["--metrics", metrics], **variables)
                with open(metrics, encoding="utf-8") as file:
                    first = json.loads(file.readline())
                if first["configuration"]["gemm-math"] != math or first["backends"]["gemm_math"] != known:
                    raise Failure(f"{math}: {first}")
    for command in (["train", "--dataset", "karate", "--compute-dtype", "fp64"], ["bench", "gemm", "--dtype", "fp64"],
                    ["bench", "epoch", "--compute-dtype", "fp64"]):
        expect_mistake(ranks, command + ["--gemm-math", "bf16"], "rounds products of fp32" if "bf16" in known else "needs a build")
    if "tf32" not in known:
        for command in (["evaluate", "--graph", "a.h5", "--weights", "b.h5"], ["bench", "gemm"],
                        ["bench", "epoch", "--dataset", "karate"],
                        ["train", "--dataset", "karate", "--mode", "minibatch", "--batch", "8"]):
            expect_mistake(ranks, command + ["--gemm-math", "tf32"], r"--gemm-math tf32 needs a build")


def trace(ranks):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        bench_lines(ranks, ["--sizes", "64", "--repeat", "2", "--trace", path])
        with open(path, encoding="utf-8") as file:
            events = json.load(file)
        events = events["traceEvents"] if isinstance(events, dict) else events
        if ranks > 1 and not any(event.get("name") == "all_reduce" for event in events):
            raise Failure("the trace knows no all_reduce")


def parts(ranks):
    """A network with every part is trained, and evaluated from its weights alone."""
    with tempfile.TemporaryDirectory() as folder:
        graph, weights = os.path.join(folder, "graph.h5"), os.path.join(folder, "weights.h5")
        source = os.path.join(folder, "source")
        expect_success(1, ["generate", "--kind", "sbm", "--vertices", "300", "--edges", "1200", "--features", "8",
                           "--classes", "3", "--seed", "1", "-o", source])
        expect_success(1, ["partition", "--input", source, "-o", graph, "--random-split", "0.5,0.25,0.25"])
        trained, evaluated = os.path.join(folder, "trained.jsonl"), os.path.join(folder, "evaluated.jsonl")
        expect_success(ranks, ["train", "--graph", graph, "--layers", "2", "--hidden", "16", "--epochs", "5", "--norm", "rms",
                               "--residual", "--input-projection", "--head", "--save-weights", weights, "--metrics", trained])
        expect_success(ranks, ["evaluate", "--graph", graph, "--weights", weights, "--metrics", evaluated])
        losses = {}
        for path, event in ((trained, "epoch"), (evaluated, "evaluate")):
            with open(path, encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
            losses[event] = [line for line in lines if line["event"] == event][-1]["test_loss"]
        if abs(losses["epoch"] - losses["evaluate"]) > 1e-5 * abs(losses["epoch"]):
            raise Failure(f"test loss: {losses}")
        short = ["train", "--graph", graph, "--layers", "2", "--hidden", "16", "--epochs", "1"]
        expect_mistake(ranks, [*short, "--init-from", weights], r"another architecture: its norm is rms, that of the model none")
        expect_success(ranks, [*short, "--trainable-features", "--save-weights", weights])
        expect_mistake(ranks, ["evaluate", "--graph", graph, "--weights", weights], r"has features that were trained")


def ranks_below(pid):
    """Ranks started by mpirun: {rank: pid}."""
    found = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
            with open(f"/proc/{entry}/environ", "rb") as file:
                variables = dict(item.split(b"=", 1) for item in file.read().split(b"\0") if b"=" in item)
        except (OSError, IndexError, ValueError):
            continue
        rank = variables.get(b"OMPI_COMM_WORLD_RANK", variables.get(b"PMI_RANK"))
        if parent == pid and rank is not None:
            found[int(rank)] = int(entry)
    return found


def hang(ranks):
    """A rank that is stopped in the middle of the work is named, and the job ends."""
    if ranks == 1:
        return
    command = MPIRUN + [str(ranks), PROGRAM, "bench", "collectives", "--sizes", "4", "--repeat", "1000000", "--timeout", "3",
                        "--operations", "all_reduce"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=ENVIRONMENT) as job:
        deadline = time.monotonic() + 20
        while len(pids := ranks_below(job.pid)) < ranks and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(3)  # into the work
        if 2 not in pids or job.poll() is not None:
            job.kill()
            raise Failure(f"did not start: {pids}")
        os.kill(pids[2], signal.SIGSTOP)
        try:
            _, stderr = job.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            job.kill()
            raise Failure("is not ended by the watchdog") from None
    for pattern in (r"^orthant: error: no progress in a collective for 3 s", r"^  rank 2: not arrived; does not answer",
                    r"^  ranks? [013,-]+: waiting \d+\.\d s in "):
        if not re.search(pattern, stderr, re.M):
            raise Failure(f"lacks /{pattern}/\n{stderr}")
    if job.returncode != 1:
        raise Failure(f"status {job.returncode}")


def files(ranks):
    """Files that cannot be read or written are found at the start."""
    with tempfile.TemporaryDirectory() as folder:
        bad = os.path.join(folder, "bad.toml")
        for text, pattern in (("lr = \n", r"bad\.toml:1:\d+: not valid TOML"),
                              ("[train]\nlr = 0.1\nlrr = 1\n", r"bad\.toml:3.*no option 'lrr'; did you mean 'lr'"),
                              ("[trian]\nlr = 0.1\n", r"bad\.toml:1.*\[trian\]; did you mean 'train'"),
                              ("[train]\nlr = 'fast'\n", r"bad\.toml:2.*number"),
                              ("[train]\nlr = -1.0\n", r"bad\.toml:2: .*must be more than 0")):
            with open(bad, "w", encoding="utf-8") as file:
                file.write(text)
            expect_mistake(ranks, ["train", "--dataset", "karate", "--config", bad], pattern)
        expect_mistake(ranks, ["train", "--dataset", "karate", "--config", folder + "/none.toml"], r"none\.toml")
        expect_mistake(ranks, ["info", "--metrics", folder + "/none/run.jsonl"], r"metrics file '.*/none/run\.jsonl'")
        expect_mistake(ranks, ["info", "--metrics", folder], r"metrics file")
        expect_mistake(ranks, ["info", "--trace", folder + "/none/trace.json"], r"trace file '.*/none/trace\.json'")


MISTAKES = [
    ([], r"name a command.*orthant --help"),
    (["trian"], r"no command 'trian'; did you mean 'train'"),
    (["--versoin"], r"no option '--versoin'; did you mean '--version'"),
    (["frobnicate"], r"no command 'frobnicate'; see `orthant --help`"),
    (["bench"], r"what to bench"),
    (["bench", "colectives"], r"did you mean 'bench collectives'"),
    (["train", "--lrr", "0.1"], r"no option '--lrr'; did you mean '--lr'"),
    (["train", "--lrr=0.1"], r"no option '--lrr'; did you mean '--lr'"),
    (["train", "--zzzzz"], r"no option '--zzzzz'; see `orthant train --help`"),
    (["train", "--lr"], r"--lr"),
    (["train", "--lr", "fast"], r"--lr: needs a number, not 'fast'"),
    (["train", "--lr", "-0.1"], r"--lr: is -0\.1, but must be more than 0"),
    (["train", "--layers", "1.5"], r"--layers: needs a whole number, not '1\.5'"),
    (["train", "--layers", "0"], r"--layers: is 0, but must be at least 1"),
    (["train", "--mode", "ful"], r"'ful' is none of full, minibatch; did you mean 'full'"),
    (["train", "--model", "gat"], r"'gat' is not built yet"),
    (["train", "--resume", "auto"], r"--resume: is not built yet"),
    (["train", "--gemm-math", "tf23"], r"'tf23' is none of fp32, tf32, bf16; did you mean 'tf32'"),
    (["train", "--dataset", "karate", "--mode", "minibatch", "--batch", "35"], r"a batch of 35 vertices, but the graph has 34"),
    (["train", "--dataset", "karate", "--mode", "minibatch", "--batch", "1"],
     r"a batch (needs at least 2 vertices|of 1 vertices for 2 ranks along x)"),
    (["train", "--dataset", "karate", "--mode", "minibatch", "--batch", "8", "--accumulate", str(1 << 62)],
     r"batches an epoch, but there are 34 vertices to share out; .*accumulate less"),
    (["train", "--dataset", "karate", "--mode", "minibatch", "--batch", "8", "--epochs", "3", "--finish-full", "4"],
     r"--finish-full 4 of 3 epochs"),
    (["train", "--dataset", "sbm:vertices=50,train=0,valid=0.5,test=0.5", "--mode", "minibatch", "--batch", "9"],
     r"no training vertices"),
    (["train", "--dataset", "karate", "--mode", "minibatch", "--batch", "8", "--trainable-features"],
     r"--trainable-features trains every vertex"),
    (["train", "extra"], r"what is 'extra' for"),
    (["plan"], r"orthant plan is not built yet"),
    (["train-lm"], r"orthant train-lm is not built yet"),
    (["info", "--verify"], r"--verify needs the file"),
    (["info", "--log-level", "lout"], r"'lout' is none of"),
    (["bench", "collectives", "--grid", "1x2x2x2"], r"1x2x2x2 is for 8 ranks, but the job has \d"),
    (["bench", "collectives", "--grid", "2x2"], r"'2x2' is not a grid"),
    (["bench", "collectives", "--sizes", "16:4"], r"'16:4' is no range of sizes"),
    (["bench", "collectives", "--operations", "all_reduce,alltoall"], r"'alltoall' is none of .*did you mean 'all_to_all'"),
    (["bench", "spmm", "--widths", "16,x"], r"--widths: 'x' is no whole number from 1 to 65536"),
    (["bench", "spmm", "--widths", "0"], r"--widths: '0' is no whole number"),
    (["bench", "spmm", "--kind", "rmatt"], r"'rmatt' is none of .*did you mean 'rmat'"),
    (["bench", "spmm", "--graph", "none.h5"], r"none\.h5"),
    (["bench", "spmm", "--grid", "4x1x1x1"], r"no data axis|1x1x1 is for 4 ranks"),
    (["bench", "gemm"], r"give either --graph graph\.h5 or both --rows N and --widths"),
    (["bench", "gemm", "--rows", "10"], r"give either --graph"),
    (["bench", "gemm", "--rows", "10", "--widths", "5"], r"--widths 5: a layer has two"),
    (["bench", "gemm", "--rows", "10", "--widths", "5--3"], r"--widths: '' is no whole number"),
    (["bench", "epoch"], r"give one of --graph graph\.h5 and --dataset"),
    (["bench", "epoch", "--dataset", "karate", "--epochs", "0"], r"--epochs 0: at least one epoch"),
    (["bench", "epoch", "--dataset", "karate", "--compute-dtype", "fp64", "--comm-dtype", "bf16"], r"bf16 carries fp32"),
    (["bench", "epoch", "--batch", "5"], r"no option '--batch'"),
]


def mistakes(ranks, arguments, pattern):
    expect_mistake(ranks, arguments, pattern)


def environment_mistake(ranks):
    expect_mistake(ranks, ["train", "--dataset", "karate"], r"ORTHANT_LR is 'abc'", ORTHANT_LR="abc")


PARTS = {
    "help": [(help_of, command) for command in COMMANDS] + [(overview,), (version,)],
    "run": [(hang,), (info,), (bench,), (bench_grid,), (precedence,), (gemm_math,), (trace,), (parts,)],
    "bench": [(spmm, "fp32", 4), (spmm, "fp64", 8), (spmm_graphs,), (gemm, "fp32", 4), (gemm, "fp64", 8),
              (epoch_of, [], 12), (epoch_of, ["--dropout", "0", "--overlap", "off", "--compute-dtype", "fp64"], 6),
              (epoch_of, ["--trainable-features", "--order", "aggregate", "--device-graph", "off"], 28, 2 * 3 * (6 * 8 + 8 * 3)),
              (sparse_features,), (bench_store,)],
    "mistakes": [(mistakes, arguments, pattern) for arguments, pattern in MISTAKES] + [(files,), (environment_mistake,)],
}


def attempt(job):
    ranks, (function, *arguments) = job
    name = f"{function.__name__} {' '.join(map(str, arguments[:1]))} on {ranks}"
    try:
        function(ranks, *arguments)
    except Failure as failure:
        return f"FAIL {name}: {failure}"
    print(f"ok   {name}", flush=True)
    return None


def attempt_all(jobs):
    """Returns the exit status."""
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        failures = [failure for failure in pool.map(attempt, jobs) if failure]
    print("\n".join(failures))
    return 1 if failures else 0


def main():
    several = 2 if sys.argv[2] == "bench" else 4
    return attempt_all([(ranks, job) for ranks in (1, several) for job in PARTS[sys.argv[2]]])


if __name__ == "__main__":
    sys.exit(main())
