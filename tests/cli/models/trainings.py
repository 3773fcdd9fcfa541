# SPDX-License-Identifier: Apache-2.0
"""Trainings of the tests of models, and what their metrics say."""

import json
import os

from program import expect_success


def lines_and_answer(ranks, scratch, words):
    """The lines of metrics, and what the program printed."""
    metrics = os.path.join(scratch, "m.jsonl")
    done = expect_success(ranks, [*words, "--metrics", metrics, "--force"])
    with open(metrics, encoding="utf-8") as file:
        return [json.loads(line) for line in file], done


def lines_of(ranks, scratch, words):
    return lines_and_answer(ranks, scratch, words)[0]


def losses(lines):
    return [line["loss"] for line in lines if line["event"] == "epoch"]
