#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The snippet of the README, from a Data object of PyTorch Geometric to probabilities in NumPy: snippet.py PROGRAM SOURCES

Runs it as it stands, but for the way that this machine calls mpirun, with arrays in place of tensors.
"""

import importlib.util
import os
import re
import sys
import tempfile

if importlib.util.find_spec("numpy") is None:
    print("skipped: numpy is not there")
    raise SystemExit(77)
import numpy  # noqa: E402

PROGRAM, SOURCES = sys.argv[1:3]


def make_data(count=400, classes=4):
    """Blocks that features and most edges tell."""
    draw = numpy.random.default_rng(1)
    y = numpy.arange(count) % classes
    sources = draw.integers(0, count, 4000)
    same = draw.random(4000) < 0.9
    targets = numpy.where(same, (sources + classes * draw.integers(1, 50, 4000)) % count, draw.integers(0, count, 4000))
    x = numpy.eye(classes)[y] + draw.normal(0, 1.5, (count, classes))
    part = draw.integers(0, 3, count)
    return {"x": x.astype("float32"), "y": y, "edge_index": numpy.asfortranarray(numpy.stack([sources, targets])),
            "train_mask": part == 0, "val_mask": part == 1, "test_mask": part == 2}


def main():
    with open(os.path.join(SOURCES, "README.md"), encoding="utf-8") as file:
        snippets = re.findall(r"^```python\n(.*?)^```", file.read(), re.M | re.S)
    if len(snippets) != 1:
        return f"the README has {len(snippets)} snippets of Python"
    code = snippets[0]
    if len(code.splitlines()) > 10:
        return f"the snippet has {len(code.splitlines())} lines"
    if "mpirun -n 4" not in code:
        return "the snippet does not run on 4 ranks"
    code = code.replace("mpirun -n 4", os.environ["ORTHANT_MPIRUN"] + " 4")
    data = make_data()
    os.environ["PATH"] = os.path.dirname(PROGRAM) + os.pathsep + os.environ["PATH"]
    names = {"data": data}
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        exec(compile(code, "README.md", "exec"), names)
        os.chdir(SOURCES)
    probabilities = names["probabilities"]
    if probabilities.shape != (400, 4) or not numpy.allclose(probabilities.sum(axis=1), 1, atol=1e-5):
        return f"probabilities of shape {probabilities.shape}"
    accuracy = (probabilities.argmax(axis=1) == data["y"])[data["test_mask"]].mean()
    print(f"test accuracy {accuracy:.3f}")
    return 0 if accuracy > 0.8 else f"accuracy {accuracy}: rows or labels are mixed up"


if __name__ == "__main__":
    sys.exit(main())
