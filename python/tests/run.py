#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the package's tests with a program: run.py PROGRAM [--quick]. Skips (status 77) without NumPy or pytest.

--quick leaves out the tests that start the program more than twice.
"""
import argparse
import importlib.util
import os
import pathlib
import sys

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("program", metavar="PROGRAM", help="path of the executable orthant")
parser.add_argument("--quick", action="store_true", help="run the quick tests only")
given = parser.parse_args()
for name in ("numpy", "pytest"):
    if importlib.util.find_spec(name) is None:
        print(f"skipped: {name} is not there")
        raise SystemExit(77)

import pytest  # noqa: E402

os.environ["ORTHANT"] = os.path.abspath(given.program)
here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent))
chosen = ["-m", "not slow"] if given.quick else []
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *chosen, str(here)]))
