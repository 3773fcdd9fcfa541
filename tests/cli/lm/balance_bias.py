#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads of experts with --balance bias and loss: balance_bias.py PROGRAM [RESULTS.jsonl]

The preset mixtral-cpu on tinyshakespeare, 500 steps. The loads of the last 100 steps together have an imbalance (largest load over the mean)
of at most 1.1 in each layer with biases, and the validation loss is not above that with the balance loss by more than 0.02. Skipped without the text.
"""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import program  # noqa: E402
from language_models import Place, check  # noqa: E402
from program import Failure, expect_success  # noqa: E402

program.LIMIT = 1800

STEPS, LAST = 500, 100
TEXT = os.path.join(os.environ.get("ORTHANT_DATA", ""), "datasets", "tinyshakespeare", "input.txt")


def training(place, balance):
    metrics = place.file(balance + ".jsonl")
    expect_success(1, ["train-lm", "--tokens", place.tokens, "--preset", "mixtral-cpu", "--steps", str(STEPS), "--eval-every", str(STEPS), "--balance", balance,
                       "--metrics", metrics])
    with open(metrics, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    last = [line["experts"] for line in lines if line["event"] == "step"][-LAST:]
    imbalances = []
    for layer in range(len(last[0])):
        loads = [sum(of_step) for of_step in zip(*(step[layer]["tokens"] for step in last))]
        imbalances.append(max(loads) * len(loads) / sum(loads))
    loss = [line["val_loss"] for line in lines if line["event"] == "eval"][-1]
    return {"balance": balance, "steps": STEPS, "imbalance_by_layer": [round(x, 4) for x in imbalances], "val_loss": round(loss, 4)}


def main():
    if not os.path.exists(TEXT):
        print(f"skipped: there is no {TEXT}; ORTHANT_DATA names the folder of the data")
        raise SystemExit(77)
    with open(TEXT, "rb") as file:
        place = Place("char", file.read())
    results = [training(place, balance) for balance in ("bias", "loss")]
    for result in results:
        print(json.dumps(result))
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in results)
    check(max(results[0]["imbalance_by_layer"]) <= 1.1, "the loads are uneven")
    check(results[0]["val_loss"] <= results[1]["val_loss"] + 0.02, "the validation loss is higher")


try:
    main()
except Failure as failure:
    print(f"FAIL {failure}")
    raise SystemExit(1) from None
