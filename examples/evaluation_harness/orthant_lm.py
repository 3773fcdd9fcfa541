# SPDX-License-Identifier: Apache-2.0
"""Models of Orthant in EleutherAI's evaluation harness (PyPI: lm-eval): a request file in, a file of scores or texts out."""

import json
import os
import subprocess
import tempfile

from lm_eval.api.model import LM


class OrthantLM(LM):
    """`command` runs orthant: ["orthant"], or ["mpirun", "-n", "4", "orthant"]. `options` are added to each run, such as ["--grid", "2x2x1x1"]."""

    def __init__(self, weights, command=("orthant",), options=(), batch=16):
        super().__init__()
        self.weights, self.orthant, self.options, self.batch = weights, list(command), list(options), str(batch)

    def run(self, words, flag, requests):
        with tempfile.TemporaryDirectory() as folder:
            asked, answered = os.path.join(folder, "requests.jsonl"), os.path.join(folder, "answers.jsonl")
            with open(asked, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(request) + "\n" for request in requests)
            subprocess.run([*self.orthant, *words, "--weights", self.weights, flag, asked, "-o", answered, *self.options], check=True)
            with open(answered, encoding="utf-8") as file:
                return [json.loads(line) for line in file]

    def score(self, pairs):
        requests = [{"context": context, "continuation": continuation} for context, continuation in pairs]
        return self.run(["evaluate-lm", "--global-batch", self.batch], "--log-likelihood", requests)

    def loglikelihood(self, requests):
        return [(line["log_likelihood"], line["is_greedy"]) for line in self.score([request.args for request in requests])]

    def loglikelihood_rolling(self, requests):
        return [line["log_likelihood"] for line in self.score([("", request.args[0]) for request in requests])]

    def generate_until(self, requests):
        texts = [""] * len(requests)
        groups = {}  # requests with the same stop texts and settings share a run
        for i, (_, settings) in enumerate(request.args for request in requests):
            groups.setdefault(json.dumps(settings, sort_keys=True), []).append(i)
        for key, members in groups.items():
            settings = json.loads(key)
            stops = settings.get("until") or []
            words = [f"--stop={stop}" for stop in ([stops] if isinstance(stops, str) else stops)]
            temperature = settings.get("temperature", 0) if settings.get("do_sample", False) else 0
            words += ["--max-tokens", str(settings.get("max_gen_toks", 256)), "--temperature", str(temperature), "--batch", self.batch]
            lines = self.run(["complete", *words], "--prompts", [{"prompt": requests[i].args[0]} for i in members])
            for i, line in zip(members, lines):
                texts[i] = line["text"]
        return texts
