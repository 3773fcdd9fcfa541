# SPDX-License-Identifier: Apache-2.0
"""The step of transformers: losses of train-lm and evaluate-lm on the device beside the host's, and some steps of a preset."""
import json

from checks import TOLERANCES, TRAINING_SECONDS, judged, not_finite, run_step
from report import Outcome

NUM_STEPS = 10
NUM_PRESET_STEPS = 20
WORDS = "of the rows and columns that every rank holds some are read and none is lost".split()
MODELS = {"gpt2": [], "gpt2-dropout": ["--dropout", "0.2"], "llama": ["--arch", "llama", "--kv-heads", "1"],
          "head-norms": ["--arch", "llama", "--qk-norm", "--head-width", "16", "--goldfish", "4,13", "--label-smoothing", "0.1",
                         "--logit-z-loss", "0.01"],
          "experts": ["--experts", "4", "--top-k", "2", "--capacity", "1.1"],
          "experts-bias": ["--experts", "4", "--top-k", "2", "--balance", "bias", "--sequence-balance-loss", "0.01"]}
SMALL = ["--layers", "2", "--hidden", "32", "--heads", "4", "--sequence", "32", "--global-batch", "8", "--warmup-steps", "2",
         "--steps", str(NUM_STEPS), "--eval-every", "0", "--seed", "1", "--compute-dtype", "fp64"]


class Ended(Exception):
    """A job ended badly: what the step comes to."""

    def __init__(self, what, outcome):
        super().__init__(what)
        outcome.reason = f"{what}: {outcome.reason}"
        self.outcome = outcome


def text():
    """Words in an order that a linear congruence draws, some 60,000 characters."""
    number, words = 1, []
    for _ in range(15000):
        number = (1103515245 * number + 12345) % 2**31
        words.append(WORDS[number // 65536 % len(WORDS)])
    return " ".join(words) + "\n"


def run(check, kind, name, *arguments):
    done, limit = run_step(check, f"lm-{name}-{kind}", check.place.on(kind, 1, *arguments), kind, TRAINING_SECONDS)
    outcome = judged(done, limit)
    if outcome.result != "passed":
        raise Ended(f"{name} on the {kind}", outcome)


def numbers(check, kind, name, event, number, *arguments):
    """That number of each such line of the job's metrics."""
    metrics = check.place.work / f"lm-{name}-{kind}.jsonl"
    metrics.unlink(missing_ok=True)
    run(check, kind, name, *arguments, "--metrics", metrics)
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    found = [line[number] for line in lines if line["event"] == event]
    problem = not_finite(kind, found) if found else "no numbers"
    if problem:
        raise Ended(name, Outcome("failed", problem.replace("epoch", "line")))
    return found


def compare(check, tokens, model):
    """Losses of a training in fp64, then the validation loss of the host's weights; their largest relative difference."""
    weights = check.place.work / f"lm-{model}.h5"
    found = {}
    for kind in ("device", "host"):
        found[kind] = numbers(check, kind, model, "step", "loss", "train-lm", "--tokens", tokens, *SMALL, *MODELS[model],
                              "--log-every", "1", "--save-weights", weights, "--force")
    for kind in ("device", "host"):
        found[kind] += numbers(check, kind, f"{model}-evaluated", "evaluate-lm", "val_loss", "evaluate-lm", "--tokens", tokens,
                               "--weights", weights, "--compute-dtype", "fp64")
    check.report.record({"language_model": model, "dtype": "fp64", **found})
    pairs = list(zip(found["device"], found["host"], strict=True))
    difference = max(abs(a - b) / abs(b) for a, b in pairs)
    lines = [f"{model}: {NUM_STEPS} steps and an evaluation, largest relative difference {difference:.2e}"]
    places = {"step  1": 0, f"step {NUM_STEPS:2d}": NUM_STEPS - 1, "evaluated": -1}
    return difference, lines + [f"  {name}  device {pairs[i][0]:.12g}  host {pairs[i][1]:.12g}" for name, i in places.items()]


def losses_lm(check):
    tokens, source = check.place.work / "lm-tokens.h5", check.place.work / "lm-text.txt"
    source.write_text(text())
    lines, worst = [], 0.0
    try:
        run(check, "host", "tokenize", "tokenize", "--input", source, "-o", tokens, "--force")
        for model in MODELS:
            difference, told = compare(check, tokens, model)
            worst = max(worst, difference)
            lines += told
        losses = numbers(check, "device", "nanogpt-cpu", "step", "loss", "train-lm", "--tokens", tokens, "--preset", "nanogpt-cpu",
                         "--steps", str(NUM_PRESET_STEPS), "--warmup-steps", "5", "--eval-every", "0", "--log-every", "1")
    except Ended as ended:
        ended.outcome.lines = lines
        return ended.outcome
    lines.append(f"nanogpt-cpu, fp32, {len(losses)} steps on the device: loss {losses[0]:.4f} to {losses[-1]:.4f}")
    if losses[-1] >= losses[0]:
        return Outcome("failed", "the preset does not learn", lines)
    is_close = worst <= TOLERANCES["fp64"]
    return Outcome("passed" if is_close else "failed", f"{worst:.2e}, at most {TOLERANCES['fp64']:g} is right", lines)
