#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exported language models in Hugging Face's transformers: hf_in_transformers.py PROGRAM

The models of hf_models.py, and OLMoE of hf_experts.py, imported and exported again, have the logits of the originals there, to the bit. Skipped
without transformers.
"""

import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hf_experts  # noqa: E402
from hf_models import HF, NAMES, WITH_EXPERTS, imported  # noqa: E402
from program import attempt_all, expect_success, require  # noqa: E402


def logits_of(folder, name, ids):
    import torch
    from transformers import AutoModelForCausalLM

    more = {"experts_implementation": "eager"} if name in (*WITH_EXPERTS, "olmoe") else {}
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, **more)(torch.tensor(ids)).logits


def exported_models_are_the_same(ranks):  # one after the other: loading sets the type of all of PyTorch for a moment
    with tempfile.TemporaryDirectory() as scratch:
        if os.path.isdir(HF):
            for name in NAMES:
                with open(os.path.join(HF, name, "expected.json"), encoding="utf-8") as file:
                    ids = json.load(file)["input_ids"]
                require_same(ranks, scratch, name, os.path.join(HF, name), imported(scratch, name), ids)
        weights = hf_experts.imported(scratch, "olmoe")
        require_same(ranks, scratch, "olmoe", os.path.join(scratch, "olmoe"), weights, [[3, 1, 4, 1, 5, 9, 2, 6], [23, 0, 7, 7, 7, 11, 13, 17]])


def require_same(ranks, scratch, name, original, weights, ids):
    back = os.path.join(scratch, "back_" + name)
    done = expect_success(ranks, ["export-weights", weights, "-o", back, "--format", "hf"])
    ours, theirs = (logits_of(folder, name, ids) for folder in (back, original))
    require((ours - theirs).abs().max().item() == 0, f"{name}: other logits", done)


def main():
    try:
        import transformers  # noqa: F401
    except ImportError as missing:
        print(f"skipped: {missing}")
        raise SystemExit(77) from None
    raise SystemExit(attempt_all([(1, (exported_models_are_the_same,))]))


if __name__ == "__main__":
    main()
