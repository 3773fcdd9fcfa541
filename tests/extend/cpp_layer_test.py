#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds examples/cpp_layer and own_convolution against an installation and runs them: cpp_layer_test.py SOURCE_DIR BUILD_DIR SCRATCH [-D..]

BUILD_DIR is a build tree of the project, which is installed into SCRATCH. What is left over goes to CMake. The last lines that
cpp_layer prints must be those of expected.txt: the grid does not change them. The losses of own_convolution are the same on 1 and 4 ranks,
in both schedules, and evaluations repeat those of the training.
"""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

SOURCES, BUILD, SCRATCH = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
EXAMPLE = SOURCES / "examples" / "cpp_layer"
OWN = SOURCES / "examples" / "own_convolution"
TRAIN = ["train", "--dataset", "sbm:vertices=200,edges=600,features=9,classes=4", "--model", "logmean", "--hidden", "8", "--norm", "rms", "--residual",
         "--epochs", "3", "--eval-every", "3", "--compute-dtype", "fp64"]
GRIDS = {2: "1x1x2x1", 4: "1x2x1x2"}
TOLERANCE = 1e-5  # of numbers that are printed with six digits


def check_module():
    specification = importlib.util.spec_from_file_location("check", SOURCES / "examples" / "check.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def run(*command):
    subprocess.run([str(word) for word in command], check=True)


def epochs_of(path):
    with open(path, encoding="utf-8") as file:
        return [event for event in map(json.loads, file) if event["event"] in ("epoch", "evaluation")]


def runs_own_convolution(prefix, launcher):
    """0 if it does."""
    build = SCRATCH / "build_own"
    run("cmake", "-S", OWN, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}", *sys.argv[4:])
    run("cmake", "--build", build)
    program, metrics, weights = build / "own_convolution", SCRATCH / "m.jsonl", SCRATCH / "w.h5"
    found = []
    for ranks, options in ((1, []), (4, ["--grid", "1x1x2x2", "--schedule", "pmm3d"]), (4, ["--grid", "1x2x2x1", "--schedule", "rows"])):
        run(*launcher, ranks, program, *TRAIN, *options, "--metrics", metrics, "--save-weights", weights, "--force")
        found.append([event["loss"] for event in epochs_of(metrics) if "loss" in event])
    run(*launcher, 4, program, *TRAIN, "--mode", "minibatch", "--batch", "50")
    run(*launcher, 1, program, "plan", "--vertices", "1000", "--nonzeros", "9000", "--widths", "16-32-4", "--model", "logmean", "--ranks", "4")
    run(*launcher, 4, program, "evaluate", *TRAIN[1:3], "--weights", weights)
    different = [losses for losses in found if max(abs(a - b) for a, b in zip(losses, found[0])) > 1e-10]
    if different or len(found[0]) < 3:
        print(f"losses of own_convolution: {found}")
    return 1 if different or len(found[0]) < 3 else 0


def main():
    check = check_module()
    shutil.rmtree(SCRATCH, ignore_errors=True)
    prefix, program = SCRATCH / "prefix", SCRATCH / "build"
    run("cmake", "--install", BUILD, "--prefix", prefix)
    run("cmake", "-S", EXAMPLE, "-B", program, f"-DCMAKE_PREFIX_PATH={prefix}", *sys.argv[4:])
    run("cmake", "--build", program)
    expected = check.lines_of((EXAMPLE / "expected.txt").read_text(encoding="utf-8"))
    launcher = os.environ.get("ORTHANT_MPIRUN", "mpirun -n").split()
    status = runs_own_convolution(prefix, launcher)
    for num_ranks, grid in GRIDS.items():
        result = subprocess.run([*launcher, str(num_ranks), str(program / "cpp_layer"), grid], capture_output=True, text=True,
                                check=False)
        if result.returncode != 0:
            print(f"{grid}: status {result.returncode}\n{result.stdout}{result.stderr}")
            return 1
        printed = check.lines_of(result.stdout)[-len(expected):]
        for wanted, got in zip(expected, printed):
            reason = check.difference(wanted, got, TOLERANCE)
            if reason:
                print(f'{grid}: "{got}" is not "{wanted}": {reason}')
                status = 1
        if len(printed) < len(expected):
            print(f"{grid}: {len(printed)} lines, and expected.txt has {len(expected)}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
