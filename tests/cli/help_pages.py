# SPDX-License-Identifier: Apache-2.0
"""The help, the version and the description of the machine."""

import re

from program import expect_success, require

COMMANDS = ["generate", "partition", "export", "train", "evaluate", "export-weights",
            "import-weights", "plan", "tokenize", "train-lm", "evaluate-lm", "plot", "bench collectives", "bench spmm",
            "bench gemm", "bench epoch", "study init", "study submit", "study status", "study collect",
            "study report", "doctor", "info"]


def help_of(ranks, command):
    done = expect_success(ranks, command.split() + ["--help"])
    require(done.stdout.count(f"Usage: orthant {command} ") == 1, "does not print its usage once", done)
    for flag in ("--help", "--config", "--metrics", "--trace", "--timeout", "--log-level", "--force"):
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
