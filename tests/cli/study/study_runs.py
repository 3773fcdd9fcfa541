# SPDX-License-Identifier: Apache-2.0
"""Runs `orthant study`, and reads what it leaves."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from program import MPIRUN, Failure, run  # noqa: E402

LAUNCHER = {"ORTHANT_MPIRUN": " ".join(MPIRUN)}


def check(condition, what):
    if not condition:
        raise Failure(what)


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def lines_of(path):
    return [json.loads(line) for line in read(path).splitlines()]


def study(*words, status=0, **variables):
    done = run(1, ["study", *words], **LAUNCHER | variables)
    check(done.returncode == status, f"study {words}: status {done.returncode}, not {status}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def expect_exact_bytes(line):
    predicted = line["predicted"]
    check(predicted["sent_bytes_are"] == "exact" and "reason" not in predicted, f"{line['key']}: bytes are not exact: {predicted}")
    check(predicted["sent_bytes"] == line["sent_bytes"], f"{line['key']}: predicts {predicted['sent_bytes']} bytes, not {line['sent_bytes']}")
