#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/evaluation_harness beside the harness's class for Hugging Face's models: evaluation_harness.py PROGRAM

A random gpt2 of ORTHANT_DATA/reference/hf with the tokenizer of completions.py. Skipped without lm-eval.
"""

import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 3, "examples", "evaluation_harness"))
from completions import check, imported  # noqa: E402
from hf_models import require_models  # noqa: E402
from program import PROGRAM, attempt_all  # noqa: E402

PAIRS = [("some words", " and more"), ("", "a text"), ("with a space ", "behind it"), ("a context of more than the model's 32 positions", " cut")]
TEXTS = ["short", "a text of more than two times thirty-two characters, which is scored in three parts", "x" * 33]
PROMPTS = [("Once", {"until": ["e", "Q"], "max_gen_toks": 9}), ("upon", {"until": ["zz"], "max_gen_toks": 5}), ("a time", {"until": ["e", "Q"], "max_gen_toks": 9})]


class Instance:
    def __init__(self, *args):
        self.args = args


def same_scores(ranks):
    from lm_eval.models.huggingface import HFLM
    from orthant_lm import OrthantLM
    from transformers import PreTrainedTokenizerFast

    with tempfile.TemporaryDirectory() as scratch:
        weights = imported(scratch, "gpt2")
        folder = os.path.join(scratch, "gpt2")
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"), eos_token="<|endoftext|>")
        theirs = HFLM(pretrained=folder, tokenizer=tokenizer, device="cpu", dtype="float64", batch_size=1, max_length=32)
        ours = OrthantLM(weights, [PROGRAM], ["--compute-dtype", "fp64"], batch=3)
        requests = [Instance(*pair) for pair in PAIRS]
        for pair, one, two in zip(PAIRS, theirs.loglikelihood(requests), ours.loglikelihood(requests)):
            check(abs(one[0] - two[0]) <= 1e-5 and one[1] == two[1], f"{pair}: {two}, not {one}")
        requests = [Instance(text) for text in TEXTS]
        for text, one, two in zip(TEXTS, theirs.loglikelihood_rolling(requests), ours.loglikelihood_rolling(requests)):
            check(abs(one - two) <= 1e-5 * len(text), f"{text}: {two}, not {one}")
        requests = [Instance(*prompt) for prompt in PROMPTS]
        one, two = theirs.generate_until(requests), ours.generate_until(requests)
        check(one == two, f"{two}, not {one}")


def main():
    try:
        from lm_eval.models import huggingface  # noqa: F401
    except ImportError as missing:
        print(f"skipped: {missing}")
        raise SystemExit(77) from None
    require_models()
    raise SystemExit(attempt_all([(1, (same_scores,))]))


if __name__ == "__main__":
    main()
