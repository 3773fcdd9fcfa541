# SPDX-License-Identifier: Apache-2.0
"""orthant bench spmm, gemm and epoch: lines whose figures fit one another and the sizes that were asked for."""

import json
import os
import re
import struct
import tempfile

from measured_rates import TINY_ROOFLINE, arithmetic, require_close, require_rates, roofline_seconds
from program import Failure, bench_lines, expect_mistake, expect_success


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


def machine(ranks):
    """The file that bench machine writes is one that plan and train read, with every group of the ranks."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "machine.toml")
        base = ["bench", "machine", "--vertices", "300", "--edges", "2000", "--repeat", "2", "--name", "mine"] + TINY_ROOFLINE
        if ranks == 1:
            expect_mistake(ranks, [*base, "-o", path], r"bench machine measures collectives, too: start it on 2 ranks")
            expect_mistake(ranks, [*base, "-o", path, "--network", "perlmuter"], r"no machine 'perlmuter'")
            text = expect_success(ranks, [*base, "-o", path, "--network", "perlmutter"]).stdout
            if "ranks_per_node = 4\n" not in text or "bytes_per_second_between_nodes = 5.96e+10\noverlap = 0\nsource = \"those of perlmutter\"" not in text:
                raise Failure(f"not the network of perlmutter: {text}")
            expect_mistake(ranks, [*base, "-o", folder + "/b.toml", "--network", "perlmutter", "--folder", folder + "/none"], r"/none")
            return
        done = expect_success(ranks, [*base, "-o", path, "--folder", folder])
        if os.listdir(folder) != ["machine.toml"]:
            raise Failure(f"left {os.listdir(folder)}")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if text != done.stdout or f"ranks_per_node = {ranks}" not in text or not re.search(r"\noverlap = [01]", text) \
                or not re.search(r"\[storage\]\nbytes_per_second = [1-9]", text) \
                or not re.search(r"\nattention_row_seconds = \d.*\n(.*\n)*\[passes\]\nrandom_number_seconds = \d.*\n"
                                 r"exponential_seconds = \d.*\nrow_sum_seconds = \d", text):
            raise Failure(f"wrote {text}")
        for table, widths in (("narrow", [2, 4, 8, 16, 32, 64, 128]), ("per_nonzero", [2, 4, 8, 16, 32, 64, 128])):
            (rows,) = re.findall(rf"^{table} = (.*)$", text, re.MULTILINE)
            if [width for width, _ in json.loads(rows)] != widths:
                raise Failure(f"{table} = {rows}")
        groups = [(stride, size) for stride in range(1, ranks) for size in range(2, ranks + 1) if ranks % (stride * size) == 0]
        if any(f"[{stride}, {size}, " not in text for stride, size in groups):
            raise Failure(f"not all of {groups}: {text}")
        expect_success(ranks, ["plan", "--vertices", "100", "--nonzeros", "500", "--widths", "16-8", "--ranks", "4", "--machine", path])
        expect_success(ranks, ["train", "--dataset", "karate", "--epochs", "1", "--machine", path])
        expect_mistake(ranks, [*base, "-o", path], r"exists")
        expect_mistake(ranks, base, r"name the file to write")


PHASES = {
    "epoch": (["--dataset", "karate", "--layers", "2", "--hidden", "8", "--epochs", "2", "--model", "gat", "--heads", "2"],
              ["reading the graph", r"building the model and its operator of \d+ non-zeros", r"training an epoch, not timed",
               "measuring the limits of this machine", "preparing the epoch's products by themselves", "timing epoch 1 of 2"]),
    "spmm": (["--vertices", "50", "--edges", "90", "--widths", "2,3", "--repeat", "1"],
             ["making the graph", r"building the operator of \d+ non-zeros", "measuring the limits of this machine",
              "timing 2 columns, product", "timing 3 columns, product"]),
    "gemm": (["--rows", "50", "--widths", "6-3", "--repeat", "1"],
             ["measuring the limits of this machine", r"timing layer 0, Q = H W: \d+ x \d+ x \d+"]),
    "collectives": (["--sizes", "4:4", "--repeat", "1", "--operations", "broadcast,barrier"],
                    ["timing broadcast along", "timing barrier along"]),
}


def phases(ranks):
    """Every bench says on stderr what it begins, once, in order."""
    for of, (arguments, lines) in PHASES.items():
        roofline = [] if of == "collectives" else TINY_ROOFLINE
        said = expect_success(ranks, ["bench", of] + arguments + roofline).stderr
        if not re.search(".*?\n".join(f"orthant: {line}" for line in lines), said, re.DOTALL) or said.count(lines[0]) != 1:
            raise Failure(f"bench {of} says {said}")


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
        rates = line["libraries_gflop_per_s"]
        if line["library"] not in rates or not all(rate > 0 for rate in rates.values()):
            raise Failure(f"odd libraries {line}")
        require_close(line, "bare_gflop_per_s", rates[line["library"]])
        require_close(line, "share", roofline_seconds(line, line["bytes"], line["flops"]) / line["seconds"])
        if ranks == 1:
            require_close(line, "flops", 2 * m * n * k)
            require_close(line, "bytes", number_bytes * (m * k + k * n + m * n))
    require_close(total, "flops", rows * GEMM_FLOPS)
    for key in ("seconds", "bare_seconds", "bytes", "flops"):
        require_close(total, key, sum(line[key] for line in products))


def gemm_table(ranks):
    """What --tune writes holds the fastest library of each line; training takes it and says so. Bad tables are one line."""
    with tempfile.TemporaryDirectory() as folder:
        table = os.path.join(folder, "table.json")
        lines = bench_lines(ranks, ["--tune", table, "--rows", "4096", "--repeat", "1"], of="gemm")
        with open(table, encoding="utf-8") as file:
            (written,) = json.load(file)["processors"]
        names = [f"{choice['numbers']} {choice['transposes']} {choice['shape']}" for choice in written["choices"]]
        if names != [line["products"] for line in lines] or len(set(names)) != 36 or not written["name"]:
            raise Failure(f"the table {written}, the lines {lines}")
        for line, choice in zip(lines, written["choices"]):
            best = max(line["gflop_per_s"].values())
            if (choice["library"], choice["gflop_per_s"]) != (line["library"], line["gflop_per_s"]) or not (
                    0.96 * best <= line["gflop_per_s"][line["library"]] <= best):
                raise Failure(f"odd line {line}")
        train = ["train", "--dataset", "karate", "--epochs", "2", "--eval-every", "0"]
        recorded = {}
        for library in ("openblas", "onednn"):
            for choice in written["choices"]:
                choice["library"] = {"fp32": library, "fp64": "openblas", "bf16": "widened"}[choice["numbers"]]
            with open(table, "w", encoding="utf-8") as file:
                json.dump({"table": "gemm_libraries", "format": 1, "processors": [written]}, file)
            metrics = os.path.join(folder, library + ".jsonl")
            expect_success(ranks, [*train, "--gemm-table", table, "--metrics", metrics])
            with open(metrics, encoding="utf-8") as file:
                recorded[library] = json.loads(file.readline())["gemm_libraries"]
            if recorded[library]["table"] != table:
                raise Failure(f"the record {recorded[library]} does not name {table}")
        has_onednn = any("oneDNN" in library for library in written["libraries"])
        if (recorded["openblas"]["choice"] != recorded["onednn"]["choice"]) != has_onednn:
            raise Failure(f"the records {recorded}")
        elsewhere = os.path.join(folder, "elsewhere.json")
        with open(elsewhere, "w", encoding="utf-8") as file:
            json.dump({"table": "gemm_libraries", "format": 1, "processors": [written | {"vendor": "Nobody"}]}, file)
        warned = expect_success(ranks, [*train, "--gemm-table", elsewhere]).stderr
        if warned.count("has no entry for") != 1:
            raise Failure(f"no warning: {warned}")
        for content in ("", "{", "[1]", '{"table": "spmm_times", "format": 1}'):
            with open(elsewhere, "w", encoding="utf-8") as file:
                file.write(content)
            for command in (train, ["bench", "gemm", "--rows", "50", "--widths", "6-3"]):
                expect_mistake(ranks, [*command, "--gemm-table", elsewhere],
                               r"cannot use the table '.*elsewhere\.json': .*bench gemm --tune")
        expect_mistake(ranks, [*train, "--gemm-table", folder], r"cannot read the table")
        expect_mistake(ranks, ["bench", "gemm", "--tune", table, "--force", "--widths", "6-3"], r"--tune measures shapes .* of its own")
        expect_mistake(ranks, ["bench", "gemm", "--tune", os.path.join(folder, "none", "t.json")], r"the table file '.*none/t\.json'")


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
    if "spmm_gather_share" in line:  # not on a device
        gathers = sum(row["gathered_bytes"] * 1e-9 / row["gather_gb_per_s"] for row in line["products"] if row["kind"] == "spmm")
        require_close(line, "spmm_gather_share", gathers / line["bare_spmm_seconds"])
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


def sparse_epochs(ranks):
    """Few rows move, and all count as the products' own: with vertices of all owners, --gather auto is as --gather all."""
    words = ["--dataset", "rmat:vertices=500,edges=2000", "--layers", "2", "--hidden", "8", "--schedule", "rows", "--epochs", "1"] + TINY_ROOFLINE
    for model in ("gcn", "gcnii"):
        (usual,), (whole,) = (bench_lines(ranks, words + ["--model", model, *more], of="epoch") for more in ([], ["--gather", "all"]))
        for key in ("spmm_flops", "gemm_flops", "spmm_bytes", "gemm_bytes", "spmm_gathered_bytes"):
            require_close(usual, key, whole[key])
        if ranks > 1 and not usual["comm_bytes"] < whole["comm_bytes"]:
            raise Failure(f"all rows move: {usual}")


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
