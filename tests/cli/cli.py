#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# The command line as a user meets it, on one rank without mpirun and on four with it: cli.py PROGRAM PART.

import concurrent.futures
import json
import os
import re
import signal
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
    for backend in ("Kokkos", "MPI", "NCCL", "HDF5", "build"):
        require(len(re.findall(rf"^{backend} +\S", done.stdout, re.M)) == 1, f"{backend} is not named once", done)


def info(ranks):
    done = expect_success(ranks, ["info", "--kokkos-threads=1"])
    require(f"ranks       {ranks} on 1 host\n" in done.stdout, "miscounts the ranks", done)
    table = done.stdout.split("\n\n")[1].splitlines()
    require(table[0].split() == ["rank", "host", "cores", "numa", "device"], "has no table", done)
    require([line.split()[0] for line in table[1:]] == [str(rank) for rank in range(ranks)], "lacks ranks", done)


def bench_lines(ranks, arguments, **variables):
    done = expect_success(ranks, ["bench", "collectives"] + arguments, **variables)
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


def trace(ranks):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        bench_lines(ranks, ["--sizes", "64", "--repeat", "2", "--trace", path])
        with open(path, encoding="utf-8") as file:
            events = json.load(file)
        events = events["traceEvents"] if isinstance(events, dict) else events
        if ranks > 1 and not any(event.get("name") == "all_reduce" for event in events):
            raise Failure("the trace knows no all_reduce")


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
    (["train", "--dataset", "karate", "--mode", "minibatch", "--batch", "35"], r"a batch of 35 vertices, but the graph has 34"),
    (["train", "--dataset", "karate", "--mode", "minibatch", "--batch", "1"],
     r"a batch (needs at least 2 vertices|of 1 vertices for 2 ranks along x)"),
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
]


def mistakes(ranks, arguments, pattern):
    expect_mistake(ranks, arguments, pattern)


def environment_mistake(ranks):
    expect_mistake(ranks, ["train", "--dataset", "karate"], r"ORTHANT_LR is 'abc'", ORTHANT_LR="abc")


PARTS = {
    "help": [(help_of, command) for command in COMMANDS] + [(overview,), (version,)],
    "run": [(hang,), (info,), (bench,), (bench_grid,), (precedence,), (trace,)],
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


def main():
    jobs = [(ranks, job) for ranks in (1, 4) for job in PARTS[sys.argv[2]]]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        failures = [failure for failure in pool.map(attempt, jobs) if failure]
    print("\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
