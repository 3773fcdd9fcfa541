#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exported language models in Hugging Face's transformers: hf_in_transformers.py PROGRAM

The models of hf_models.py, imported and exported again, have the logits of the originals there, to the bit. Skipped without transformers.
"""

import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hf_models import HF, NAMES, WITH_EXPERTS, imported, require_models  # noqa: E402
from program import attempt_all, expect_success, require  # noqa: E402


def logits_of(folder, name, ids):
    import torch
    from transformers import AutoModelForCausalLM

    more = {"experts_implementation": "eager"} if name in WITH_EXPERTS else {}
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, **more)(torch.tensor(ids)).logits


def exported_models_are_the_same(ranks):
    for name in NAMES:  # one after the other: loading sets the type of all of PyTorch for a moment
        exported_model_is_the_same(ranks, name)


def exported_model_is_the_same(ranks, name):
    with open(os.path.join(HF, name, "expected.json"), encoding="utf-8") as file:
        ids = json.load(file)["input_ids"]
    with tempfile.TemporaryDirectory() as scratch:
        back = os.path.join(scratch, "back")
        done = expect_success(ranks, ["export-weights", imported(scratch, name), "-o", back, "--format", "hf"])
        original, exported = (logits_of(folder, name, ids) for folder in (os.path.join(HF, name), back))
        require((original - exported).abs().max().item() == 0, f"{name}: other logits", done)


def main():
    try:
        import transformers  # noqa: F401
    except ImportError as missing:
        print(f"skipped: {missing}")
        raise SystemExit(77) from None
    require_models()
    raise SystemExit(attempt_all([(1, (exported_models_are_the_same,))]))


if __name__ == "__main__":
    main()
