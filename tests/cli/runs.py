# SPDX-License-Identifier: Apache-2.0
"""Runs that end well, and one that hangs: benchmarks of collectives, the sources of options, traces, training."""

import json
import os
import re
import signal
import subprocess
import tempfile
import time

from program import ENVIRONMENT, LIMIT, MPIRUN, PROGRAM, Failure, bench_lines, expect_mistake, expect_success


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
    if known not in (["fp32"], ["fp32", "bf16"], ["fp32", "tf32", "bf16"]):
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
                    expect_mistake(ranks, few + arguments, rf"--gemm-math {math} .* needs a build for CUDA devices.*leave it out",
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
            expect_mistake(ranks, command + ["--gemm-math", "tf32"], r"--gemm-math tf32 .*needs a build")


def precision(ranks):
    """--precision stands for other options, which override it."""
    few = ["train", "--dataset", "karate", "--epochs", "1"]
    with tempfile.TemporaryDirectory() as folder:
        def options_of(*arguments):
            metrics = os.path.join(folder, "run.jsonl")
            expect_success(ranks, [*few, "--force", "--metrics", metrics, *arguments])
            with open(metrics, encoding="utf-8") as file:
                given = json.loads(file.readline())["configuration"]
            return [given[name] for name in ("compute-dtype", "operand-dtype", "comm-dtype", "gemm-math")]

        for arguments, expected in (([], ["fp32"] * 4),
                                    (["--precision", "bf16"], ["fp32", "bf16", "bf16", "fp32"]),
                                    (["--precision", "fp16"], ["fp32", "fp16", "fp16", "fp32"]),
                                    (["--precision", "fp64"], ["fp64", "fp32", "fp32", "fp32"]),
                                    (["--precision", "bf16", "--jump", "cat"], ["fp32", "fp32", "bf16", "bf16"]),
                                    (["--precision", "bf16", "--comm-dtype", "fp32"], ["fp32", "bf16", "fp32", "fp32"])):
            if (found := options_of(*arguments)) != expected:
                raise Failure(f"{arguments}: {found}")
    expect_mistake(ranks, [*few, "--precision", "bf16", "--compute-dtype", "fp64"], r"need --compute-dtype fp32.*leave one of them out")
    expect_mistake(ranks, [*few, "--precision", "half"], r"'half' is none of fp32, tf32, bf16, fp16, fp64")
    lm = ["train-lm", "--tokens", "t.h5", "--precision"]
    expect_mistake(ranks, [*lm, "bf16", "--compute-dtype", "fp64"], r"bf16 .*rounds products of fp32; leave it out")
    expect_mistake(ranks, [*lm, "fp16"], r"'fp16' is none of fp32, tf32, bf16, fp64")


def operand_dtype(ranks):
    """Activations in 16 bits: nearly the losses of fp32, half the gathered bytes, in metrics and checkpoints."""
    few = ["train", "--dataset", "sbm:vertices=300,features=8,classes=4", "--hidden", "16", "--dropout", "0"]
    three = [*few, "--epochs", "3"]

    def records(*arguments):
        with tempfile.TemporaryDirectory() as folder:
            metrics = os.path.join(folder, "run.jsonl")
            expect_success(ranks, [*three, *arguments, "--metrics", metrics])
            with open(metrics, encoding="utf-8") as file:
                return [json.loads(line) for line in file]

    def losses(lines):
        return [line["loss"] for line in lines if line["event"] == "epoch"]

    for schedule in (["--schedule", "rows"], ["--schedule", "pmm3d"], ["--schedule", "rows", "--prune", "on"],
                     ["--schedule", "rows", "--mode", "minibatch", "--batch", "64"]):
        exact = losses(records(*schedule))
        for dtype, unit in (("bf16", 2**-8), ("fp16", 2**-11)):
            lines = records(*schedule, "--operand-dtype", dtype)
            if lines[0]["configuration"]["operand-dtype"] != dtype:
                raise Failure(f"{lines[0]}")
            rounded = losses(lines)
            if rounded == exact or any(abs(x - y) > 8 * unit * y for x, y in zip(rounded, exact)):
                raise Failure(f"{schedule}, {dtype}: {rounded} for {exact}")
    epoch = [*few[1:3], "--epochs", "1", "--stream-mib", "1", "--gemm-size", "64", "--schedule", "rows"]
    whole, half = (bench_lines(ranks, epoch + more, of="epoch")[-1]["spmm_gathered_bytes"]
                   for more in ([], ["--operand-dtype", "bf16"]))
    if whole != 2 * half:
        raise Failure(f"gathers {half} bytes in place of {whole}")
    with tempfile.TemporaryDirectory() as folder:
        expect_success(ranks, [*three, "--operand-dtype", "bf16", "--checkpoint", folder])
        longer = [*few, "--epochs", "4", "--checkpoint", folder, "--resume", "auto"]
        expect_mistake(ranks, longer, r"its --operand-dtype is bf16, here it is fp32.*--resume-override precision")
        expect_success(ranks, [*longer, "--resume-override", "precision"])


def gather(ranks):
    """Which rows move between owners of vertices is said, with the share that was found."""
    few = ["train", "--dataset", "ring:vertices=200,features=4,classes=3", "--epochs", "1", "--grid", f"1x{ranks}x1x1"]
    rows = ["--schedule", "rows"]
    for arguments, expected in ((rows, ["needed"]), ([*rows, "--gather", "needed"], ["needed"]),
                                ([*rows, "--gather", "all"], []), ([], [])):
        text = expect_success(ranks, few + arguments).stdout
        found = re.findall(r"^gather +(\w+) rows along x \(coverage [01]\.\d{3}\)$", text, re.M)
        if found != (expected if ranks > 1 else []):
            raise Failure(f"{arguments}: {found}\n{text}")
    expect_success(ranks, [*few, *rows, "--gather", "needed", "--mode", "minibatch", "--batch", "50"])


def prune(ranks):
    """What a pruned step keeps is said, the losses stay, and auto prunes what is worth it."""
    with tempfile.TemporaryDirectory() as folder:
        def trained(share, *arguments):
            metrics = os.path.join(folder, "metrics.jsonl")
            graph = f"ring:vertices=200,features=4,classes=3,train={share},valid=0.1,test=0.1"
            text = expect_success(ranks, ["train", "--dataset", graph, "--epochs", "3", "--eval-every", "1", "--grid",
                                          f"1x{ranks}x1x1", "--metrics", metrics, *arguments]).stdout
            with open(metrics, encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
            os.remove(metrics)
            said = re.findall(r"^ +layer (\d): (\d+) rows, (\d+) non-zeros$", text, re.M)
            kept = lines[0].get("kept", [])
            if [(str(l), str(layer["rows"]), str(layer["nonzeros"])) for l, layer in enumerate(kept)] != said:
                raise Failure(f"{kept}\n{text}")
            return kept, [line[name] for line in lines if line["event"] == "epoch" for name in ("loss", "val_loss", "test_loss")]

        rows = ["--schedule", "rows"]
        _, losses = trained(0.02, *rows)
        for arguments in (["--prune", "on"], ["--prune", "auto"]):
            kept, found = trained(0.02, *rows, *arguments)
            # 4 vertices of a ring; each has 3 non-zeros in its row, and a layer adds a neighbor on either side.
            if len(kept) != 3 or kept[2] != {"rows": 4, "nonzeros": 12} or not 4 < kept[1]["rows"] < kept[0]["rows"] <= 20:
                raise Failure(f"{arguments}: {kept}")
            if any(abs(a - b) > 1e-5 for a, b in zip(losses, found, strict=True)):
                raise Failure(f"{arguments}: {losses} {found}")
        for share, arguments in ((0.8, [*rows, "--prune", "auto"]), (0.02, ["--schedule", "pmm3d", "--prune", "auto"]),
                                 (0.02, [*rows, "--prune", "off"])):
            if trained(share, *arguments)[0]:
                raise Failure(f"{share} {arguments}: pruned")


def trace(ranks):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        bench_lines(ranks, ["--sizes", "64", "--repeat", "2", "--trace", path])
        with open(path, encoding="utf-8") as file:
            events = json.load(file)
        events = events["traceEvents"] if isinstance(events, dict) else events
        if ranks > 1 and not any(event.get("name") == "all_reduce" for event in events):
            raise Failure("the trace knows no all_reduce")


def rates(ranks):
    """The learning rate of every epoch is in the metrics, also of one that warms up and decays."""
    for options, expected in (([], [0.01] * 5),
                              (["--lr-schedule", "linear", "--warmup-steps", "2", "--lr", "0.04", "--min-lr", "0.01"],
                               [0.02, 0.04, 0.03, 0.02, 0.01])):
        with tempfile.TemporaryDirectory() as folder:
            metrics = os.path.join(folder, "run.jsonl")
            expect_success(ranks, ["train", "--dataset", "karate", "--epochs", "5", "--metrics", metrics, *options])
            with open(metrics, encoding="utf-8") as file:
                found = [line["lr"] for line in map(json.loads, file) if line["event"] == "epoch"]
            if len(found) != 5 or max(abs(a - b) for a, b in zip(found, expected)) > 1e-16:
                raise Failure(f"learning rates {found}")


def parts(ranks):
    """A network with every part is trained, and evaluated from its weights alone."""
    with tempfile.TemporaryDirectory() as folder:
        graph, weights = os.path.join(folder, "graph.h5"), os.path.join(folder, "weights.h5")
        source = os.path.join(folder, "source")
        expect_success(1, ["generate", "--kind", "sbm", "--vertices", "300", "--edges", "1200", "--features", "8",
                           "--classes", "3", "--seed", "1", "-o", source])
        expect_success(1, ["partition", "--input", source, "-o", graph, "--random-split", "0.5,0.25,0.25"])
        trained, evaluated = os.path.join(folder, "trained.jsonl"), os.path.join(folder, "evaluated.jsonl")
        train = ["train", "--graph", graph, "--layers", "2", "--hidden", "16"]
        for more in (["--trainable-features"], ["--norm", "rms", "--residual", "--input-projection", "--head"]):
            expect_success(ranks, [*train, *more, "--epochs", "5", "--save-weights", weights, "--metrics", trained, "--force"])
            expect_success(ranks, ["evaluate", "--graph", graph, "--weights", weights, "--metrics", evaluated, "--force"])
            losses = {}
            for path, event in ((trained, "epoch"), (evaluated, "evaluate")):
                with open(path, encoding="utf-8") as file:
                    lines = [json.loads(line) for line in file]
                losses[event] = [line for line in lines if line["event"] == event][-1]["test_loss"]
            if abs(losses["epoch"] - losses["evaluate"]) > 1e-5 * abs(losses["epoch"]):
                raise Failure(f"{more}: test loss: {losses}")
        expect_mistake(ranks, [*train, "--epochs", "1", "--init-from", weights], r"another architecture: its norm is rms, that of the model none")
