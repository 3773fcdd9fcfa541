#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds examples/cpp_layer against an installation and runs it on two grids: cpp_layer_test.py SOURCE_DIR BUILD_DIR SCRATCH [-D..]

BUILD_DIR is a build tree of the project, which is installed into SCRATCH. What is left over goes to CMake. The last lines that
the program prints must be those of expected.txt: the grid does not change them.
"""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

SOURCES, BUILD, SCRATCH = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
EXAMPLE = SOURCES / "examples" / "cpp_layer"
GRIDS = {2: "1x1x2x1", 4: "1x2x1x2"}
TOLERANCE = 1e-5  # of numbers that are printed with six digits


def check_module():
    specification = importlib.util.spec_from_file_location("check", SOURCES / "examples" / "check.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def run(*command):
    subprocess.run([str(word) for word in command], check=True)


def main():
    check = check_module()
    shutil.rmtree(SCRATCH, ignore_errors=True)
    prefix, program = SCRATCH / "prefix", SCRATCH / "build"
    run("cmake", "--install", BUILD, "--prefix", prefix)
    run("cmake", "-S", EXAMPLE, "-B", program, f"-DCMAKE_PREFIX_PATH={prefix}", *sys.argv[4:])
    run("cmake", "--build", program)
    expected = check.lines_of((EXAMPLE / "expected.txt").read_text(encoding="utf-8"))
    launcher = os.environ.get("ORTHANT_MPIRUN", "mpirun -n").split()
    status = 0
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
