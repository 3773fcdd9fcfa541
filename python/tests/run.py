#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the package's tests with the program at the given path: run.py PROGRAM. Skips (status 77) without NumPy or pytest."""
import importlib.util
import os
import pathlib
import sys

for name in ("numpy", "pytest"):
    if importlib.util.find_spec(name) is None:
        print(f"skipped: {name} is not there")
        raise SystemExit(77)

import pytest  # noqa: E402

os.environ["ORTHANT"] = sys.argv[1]
here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent))
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", str(here)]))
