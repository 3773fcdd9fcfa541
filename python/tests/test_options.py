# SPDX-License-Identifier: Apache-2.0
"""Keyword arguments become the options that `--help` shows."""
import numpy as np
import pytest

import orthant
from orthant._options import arguments, parse_help

HELP = """Train
Options:
  -h,--help                         Print this help
  -o,--output TEXT                  File to write
  --lr FLOAT=0.01                   Learning rate
  --lr-schedule TEXT=constant       The learning rate after the warm-up
  --bias,--no-bias{false}           Add a bias
  --tied-head,--no-tied-head{false} A head of its own
  --random-split FLOAT ...          Fractions
  --head                            A linear layer at the end
"""


def test_help_is_understood():
    found = {option.name: option for option in parse_help(HELP)}

    assert list(found) == ["output", "lr", "lr-schedule", "bias", "tied-head", "random-split", "head"]
    assert (found["lr"].type, found["lr"].default, found["lr"].help) == ("FLOAT", "0.01", "Learning rate")
    assert found["bias"].has_negative and found["bias"].type is None
    assert found["tied-head"].has_negative and found["tied-head"].help == "A head of its own"
    assert found["random-split"].takes_list
    assert not found["head"].has_negative


@pytest.mark.slow
def test_every_option_of_the_help_is_found(program):
    import re
    import subprocess
    for subcommand in ("train", "train-lm", "partition", "evaluate", "plan", "bench epoch", "study submit"):
        text = subprocess.run([program, *subcommand.split(), "--help"], capture_output=True, text=True).stdout
        lines = re.findall(r"^  (?:-\w,)?--([\w-]+)", text, re.MULTILINE)
        assert ["help", *orthant.options(subcommand)] == lines, subcommand


def test_keywords_become_words(program):
    words = arguments("train", {"lr_schedule": "cosine", "residual": True, "head": False, "bias": False, "lr": 1e-3,
                                "betas": (0.9, 0.95), "overlap": True, "grid": None, "kokkos_num_threads": 2})

    assert words == ["--lr-schedule=cosine", "--residual=on", "--no-bias", "--lr=0.001", "--betas=0.9,0.95", "--overlap=on",
                     "--kokkos-num-threads=2"]


def test_booleans_of_numpy_are_booleans(program):
    words = arguments("train", {"residual": np.bool_(True), "bias": np.bool_(False), "overlap": np.bool_(True)})

    assert words == ["--residual=on", "--no-bias", "--overlap=on"]
    assert arguments("train", {"residual": False}) == ["--residual=off"]
    assert arguments("train", {"residual": "project"}) == ["--residual=project"]
    with pytest.raises(TypeError, match="epochs takes a number"):
        arguments("train", {"epochs": np.bool_(True)})


@pytest.mark.parametrize("keyword, near", [("lr_shedule", "lr_schedule"), ("hiden", "hidden"), ("epoch", "epochs")])
def test_unknown_keywords_name_the_nearest(program, keyword, near):
    with pytest.raises(TypeError, match=f"train has no option '{keyword}'; did you mean '{near}'"):
        orthant.train("graph.h5", **{keyword: 1})


def test_kinds_that_do_not_fit_are_refused(program):
    with pytest.raises(TypeError, match="head is True or False"):
        orthant.train("graph.h5", head="yes")
    with pytest.raises(TypeError, match="epochs takes a number"):
        orthant.train("graph.h5", epochs=True)


def test_the_program_is_looked_for(monkeypatch):
    monkeypatch.setenv("ORTHANT", "/nowhere/orthant")

    with pytest.raises(FileNotFoundError, match="ORTHANT"):
        orthant.train("graph.h5")
