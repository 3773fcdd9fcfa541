#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exported adapters in Hugging Face's PEFT: peft_adapters.py PROGRAM

A base that train-lm wrote, with the adapters that PEFT reads, has the logits of the merged weights. Skipped without PEFT.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from language_models import Place  # noqa: E402
from program import attempt_all, expect_success, require  # noqa: E402


def peft_has_the_merged_weights(_):
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    place = Place()
    ids = torch.arange(48).reshape(3, 16) % 13
    for name, model, targets in (("llama", ["--arch", "llama", "--kv-heads", "2"], "q,v,o,gate,down"), ("llama_kv", ["--arch", "llama"], "k,up"),
                                 ("gpt2", ["--activation", "gelu_tanh"], "q,v,o,up,down"), ("gpt2_k", ["--activation", "gelu_tanh"], "k")):
        weights, tuned = place.file(name + ".h5"), place.file(name + "-tuned.h5")
        place.train(1, *model, "--save-weights", weights, steps=5)
        place.train(1, *model, "--init-from", weights, "--save-weights", tuned, "--lora-rank", "3", "--lora-alpha", "6", "--lora-targets", targets,
                    "--lr", "0.02", "--eval-every", "0", steps=10)
        folders = [place.file(f"{name}-{kind}") for kind in ("base", "merged", "peft")]
        for file, folder, kind in zip((weights, tuned, tuned), folders, ("hf", "hf", "peft")):
            done = expect_success(1, ["export-weights", file, "-o", folder, "--format", kind])
        base, merged = (AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64) for folder in folders[:2])
        with torch.no_grad():
            before, expected = base(ids).logits.clone(), merged(ids).logits
            found = PeftModel.from_pretrained(base, folders[2]).double()(ids).logits
        require((expected - before).abs().max().item() > 1e-5, f"{name}: the adapters have no effect", done)
        require((found - expected).abs().max().item() < 1e-9, f"{name}: PEFT has other logits", done)


def main():
    try:
        import peft  # noqa: F401
    except ImportError as missing:
        print(f"skipped: {missing}")
        raise SystemExit(77) from None
    raise SystemExit(attempt_all([(1, (peft_has_the_merged_weights,))]))


if __name__ == "__main__":
    main()
