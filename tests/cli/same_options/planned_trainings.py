#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Command lines of trainings with plan, plan-lm, bench epoch or evaluate in place of train: options of the network have the same
names and meanings there, and what has no effect is ignored with one note: planned_trainings.py PROGRAM"""

import json
import os
import re
import shlex
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from program import attempt_all, expect_mistake, expect_success, require  # noqa: E402

SBM = "sbm:vertices=300,edges=2400,features=6,classes=3"
LINES = {  # of train, and what the title of the plan says of the network
    "defaults": (["--dataset", SBM], "A GCN 6-128-128-3 of 300 vertices"),
    "gcn": (["--dataset", SBM, "--layers", "2", "--hidden", "16", "--no-bias", "--norm", "rms", "--lr", "0.1", "--epochs", "7",
             "--seed", "3"], "A GCN 6-16-3 of 300 vertices"),
    "gat": (["--dataset", SBM, "--model", "gat", "--layers", "2", "--hidden", "32", "--heads", "4", "--attention-dropout", "0.3",
             "--activation", "elu", "--patience", "5"], "A GAT 6-32-3 of 300 vertices"),
    "gcnii": (["--dataset", SBM, "--model", "gcnii", "--layers", "3", "--hidden", "8", "--theta", "0.4"], "A GCNII 6-8-8-8-3 of 300 vertices"),
    "gin": (["--dataset", SBM, "--model", "gin", "--layers", "2", "--hidden", "8", "--optimizer", "sgd"], "A GIN 6-8-8-3 of 300 vertices"),
    "preset": (["--dataset", SBM, "--preset", "gcnii-citeseer", "--layers", "2"], "A GCNII 6-256-256-3 of 300 vertices"),
    "batches": (["--dataset", SBM, "--mode", "minibatch", "--batch", "64", "--accumulate", "2", "--finish-full", "1", "--epochs", "4",
                 "--batch-train-fraction", "0.5"], "Mini-batches of 64 of 300 vertices"),
    "auto batches": (["--dataset", SBM, "--mode", "minibatch"], "Mini-batches of 150 of 300 vertices"),
}
RUNNING = {"--metrics": "run.jsonl", "--save-weights": "w.h5", "--save-best": "b.h5", "--checkpoint": "checkpoints", "--checkpoint-every": "2",
           "--log-every": "5", "--label-smoothing": "0.1"}
TINY = ["--stream-mib", "4", "--gemm-size", "64"]
NOTE = r"ignores what has no effect here: (.*)"


def train_lines(ranks):
    """As they are, on the ranks of the job, and with the command that repeats them."""
    for name, (line, title) in LINES.items():
        done = expect_success(ranks, ["plan", *line, "--machine", "host"])
        require(title in done.stdout, f"{name}: plans another network", done)
        require(f" on {ranks} rank" in done.stdout, f"{name}: not on the ranks of the job", done)
        command, = re.findall(r"^orthant (train .*?) +# on", done.stdout, re.M)
        require(set(line) <= set(command.split()), f"{name}: prints {command}", done)
        require(len(re.findall(NOTE, done.stderr)) == (name in ("gcn", "gat", "batches")), f"{name}: notes something else", done)


def passed_over(ranks):
    """One note lists them; files are neither read, written nor in the way."""
    with tempfile.TemporaryDirectory() as folder:
        at = {option: os.path.join(folder, value) if "." in value and "/" not in value and not value[0].isdigit() else value
              for option, value in RUNNING.items()}
        at["--checkpoint"] = os.path.join(folder, "checkpoints")
        with open(at["--metrics"], "w", encoding="utf-8") as file:
            file.write("kept\n")
        words = [word for pair in at.items() for word in pair]
        done = expect_success(ranks, ["plan", "--dataset", SBM, *words, "--trace", at["--metrics"]])
        (note,) = re.findall(NOTE, done.stderr)
        require(sorted(note.split(", ")) == sorted([*at, "--trace"]), f"lists {note}", done)
        require(os.listdir(folder) == ["run.jsonl"] and open(at["--metrics"], encoding="utf-8").read() == "kept\n", "touches files", done)
        done = expect_success(1, ["plan-lm", "--vocabulary", "65", "--layers", "1", "--steps", "30", "--lr", "0.01", "--save-weights", at["--metrics"],
                                  "--resume", "auto", "--checkpoint", at["--checkpoint"], "--machine", "host"])
        (note,) = re.findall(NOTE, done.stderr)
        require(sorted(note.split(", ")) == ["--checkpoint", "--lr", "--resume", "--save-weights", "--steps"], f"lists {note}", done)
        require(os.listdir(folder) == ["run.jsonl"], "writes files", done)


def own_tables(ranks):
    """The table of train counts, unless plan has one of its own; so do variables."""
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "c.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f'hidden = 8\n[plan]\nlayers = 4\n[train]\ndataset = "{SBM}"\nhidden = 16\nlayers = 2\nepochs = 3\n')
        done = expect_success(ranks, ["plan", "--config", config])
        require("A GCN 6-16-16-16-3 of 300" in done.stdout and re.findall(NOTE, done.stderr) == ["--epochs"], "reads other tables", done)
        done = expect_success(ranks, ["plan", "--config", config], ORTHANT_HIDDEN="24", ORTHANT_MODEL="sage")
        require("A GraphSAGE (mean) 6-24-24-24-3 of 300" in done.stdout, "reads no variables", done)
        with open(config, "w", encoding="utf-8") as file:
            file.write("[train]\nranks = 3\n")
        expect_mistake(ranks, ["plan", "--config", config], r"there is no option 'ranks'")


def refused_lines(ranks):
    """What train refuses plan refuses with the same words, and it names what it cannot count."""
    plan = ["--dataset", SBM]
    for words, message in ((["--epochs", "-1"], r"--epochs: is -1, but must be at least 0"),
                           (["--save-weight", "w.h5"], r"no option '--save-weight'; did you mean '--save-weights'"),
                           (["--hiden", "16"], r"no option '--hiden'; did you mean '--hidden'"),
                           (["--batch", "8"], r"--batch is for mini-batches: give --mode minibatch"),
                           (["--min-lr", "0.1"], r"--min-lr .*needs another --lr-schedule"),
                           (["--epochs", "3", "--warmup-steps", "5"], r"--warmup-steps 5 of a training of 3 steps"),
                           (["--model", "gat", "--hidden", "30"], r"--heads must divide --hidden: .*30 columns and 8 heads"),
                           (["--task", "links"], r"no held-out edges to predict"),
                           (["--checkpoint-every", "5h", "--checkpoint", "none"], r"--checkpoint-every 5h: give a number of epochs")):
        expect_mistake(ranks, ["train", *plan, *words], message)
        expect_mistake(ranks, ["plan", *plan, *words], message)
    for words, message in ((["--compute-dtype", "fp64"], r"plan counts .*fp32: leave out --compute-dtype fp64"),
                           (["--mode", "minibatch", "--batch", "9", "--sampler", "degree"], r"--sampler uniform alone: leave out --sampler degree"),
                           (["--grid", "1x1x1x2", "--ranks", "3"], r"--ranks 3: --grid 1x1x1x2 is for 2 ranks"),
                           (["--grid", "2x1x1x1"], r"full-graph work has no data axis"),
                           (["--vertices", "9"], r"--dataset has the counts of its graph")):
        expect_mistake(ranks, ["plan", *plan, *words], message)
    for words, message in ((["--mode", "minibatch"], r"bench epoch times epochs of the full graph: leave out --mode minibatch"),
                           (["--edge-dropout", "0.1"], r"leave out --edge-dropout"), (["--lrr", "1"], r"did you mean '--lr'")):
        expect_mistake(ranks, ["bench", "epoch", *plan, *words], message)
    expect_mistake(ranks, ["plan-lm", "--vocabulary", "9", "--compute-dtype", "fp64"], r"plan-lm counts .*leave out --compute-dtype fp64")
    expect_mistake(ranks, ["plan-lm", "--vocabulary", "9", "--step", "3"], r"no option '--step'; did you mean '--steps'")


def links_of_stores(ranks):
    """Of a store that holds edges out, in the one schedule that predicts them; what is printed trains."""
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "held out.h5")
        expect_success(1, ["partition", "--generate", "sbm", "--vertices", "300", "--edges", "2400", "--features", "6", "--classes", "3",
                           "--edge-split", "0.1,0.15", "-o", store])
        line = ["--graph", store, "--task", "links", "--layers", "2", "--hidden", "12", "--embedding", "6", "--epochs", "1"]
        done = expect_success(ranks, ["plan", *line, "--machine", "host"])
        command, = re.findall(r"^orthant (train .*?) +# on", done.stdout, re.M)
        words = shlex.split(command)
        require("A GCN 6-12-6 of 300 vertices" in done.stdout and "--schedule rows" in command and store in words, f"prints {command}", done)
        expect_success(ranks, words)


def preset_and_widths(ranks):
    """--widths has the place of --layers and --hidden, not beside them."""
    counts = ["plan", "--vertices", "1000", "--nonzeros", "9000", "--ranks", "4"]
    done = expect_success(ranks, [*counts, "--widths", "16-32-4", "--preset", "kipf-gcn"])
    require("A GCN 16-32-4 of 1000" in done.stdout, "plans another network", done)
    for option in ("--layers", "--hidden"):
        expect_mistake(ranks, [*counts, "--widths", "16-32-4", option, "2"], rf"--widths 16-32-4 has the widths of all layers: leave out {option}")
    adam, sgd = (json.loads(expect_success(1, [*counts, "--widths", "16-32-4", "--schedule", "rows", "--top", "1", "--json",
                                               "--optimizer", name]).stdout) for name in ("adam", "sgd"))
    require(sgd["array_bytes"] < adam["array_bytes"], f"moments of {sgd}", done)


def fixed_grids(ranks):
    """--grid of a training is the only one, and says the number of ranks."""
    done = expect_success(ranks, ["plan", "--dataset", SBM, "--grid", "1x2x2x3", "--json"])
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    require([line["grid"] for line in lines] == ["1x2x2x3"] * 2 and lines[0]["ranks"] == 12, f"plans {lines}", done)
    done = expect_success(ranks, ["plan", "--dataset", SBM, "--mode", "minibatch", "--batch", "50", "--grid", "2x1x1x2", "--schedule", "rows", "--json"])
    (line,) = [json.loads(line) for line in done.stdout.splitlines()]
    require(line["grid"] == "2x1x1x2" and line["effective_batch"] == 100, f"plans {line}", done)
    done = expect_success(ranks, ["plan-lm", "--vocabulary", "65", "--layers", "1", "--hidden", "32", "--grid", "2x1x2x1", "--json"])
    (line,) = [json.loads(line) for line in done.stdout.splitlines()]
    require(line["grid"] == "2x1x2x1" and line["ranks"] == 4, f"plans {line}", done)


def counted_alike(ranks):
    """What is planned of a training is what it sends: on two ranks both send the same."""
    with tempfile.TemporaryDirectory() as folder:
        for number, line in enumerate((["--layers", "2", "--hidden", "16", "--input-projection", "--head", "--dropout", "0"],
                                       ["--model", "gat", "--layers", "2", "--hidden", "16", "--heads", "4"],
                                       ["--model", "appnp", "--propagation-steps", "3", "--hidden", "16"])):
            words = ["--dataset", "sbm:vertices=300,edges=2400,features=6,classes=4", *line, "--grid", "1x2x1x1", "--schedule", "rows", "--gather", "all"]
            if "gat" in line:
                words = words[:-2]
            metrics = os.path.join(folder, f"{number}.jsonl")
            done = expect_success(2, ["train", *words, "--epochs", "2", "--eval-every", "0", "--metrics", metrics])
            with open(metrics, encoding="utf-8") as file:
                epoch = [json.loads(text) for text in file if '"event":"epoch"' in text][-1]
            planned = json.loads(expect_success(1, ["plan", *words, "--json"]).stdout)
            require(abs(epoch["sent_bytes"] - 2 * planned["sent_bytes"]) <= 0.01 * epoch["sent_bytes"],
                    f"{line}: sends {epoch['sent_bytes']}, planned {planned['sent_bytes']} per rank", done)


def timed_lines(ranks):
    """bench epoch times a training's network; a preset's number of epochs is not its own."""
    with tempfile.TemporaryDirectory() as folder:
        for words, layers, hidden, epochs in ((["--preset", "kipf-gcn"], 2, 16, 10), (["--layers", "2", "--hidden", "8", "--epochs", "2"], 2, 8, 2)):
            weights = os.path.join(folder, "w.h5")
            done = expect_success(1, ["bench", "epoch", "--dataset", SBM, *words, "--save-weights", weights, "--lr-schedule", "cosine", "--eval-every", "1",
                                      *TINY])
            line = json.loads(done.stdout)
            require((line["layers"], line["hidden"], line["epochs"]) == (layers, hidden, epochs), f"times {line}", done)
            require(not os.path.exists(weights), "writes weights", done)
            (note,) = re.findall(NOTE, done.stderr)
            require(note == "--lr-schedule, --eval-every, --save-weights", f"notes {note}", done)
        done = expect_success(1, ["bench", "epoch", "--dataset", SBM, "--preset", "kipf-gcn", "--warmup-steps", "300", "--betas", "0.8,0.9",
                                  "--lr-schedule", "linear", *TINY])
        require(re.findall(NOTE, done.stderr) == ["--lr-schedule, --warmup-steps"] and "gives way" not in done.stderr, "notes something else", done)


def evaluated_lines(ranks):
    """Options of the network must be those of the weights."""
    with tempfile.TemporaryDirectory() as folder:
        weights = os.path.join(folder, "w.h5")
        line = ["--dataset", SBM, "--layers", "2", "--hidden", "8", "--norm", "rms", "--epochs", "2", "--dropout", "0.3"]
        expect_success(ranks, ["train", *line, "--save-weights", weights])
        done = expect_success(ranks, ["evaluate", *line, "--weights", weights])
        require(re.findall(NOTE, done.stderr) == ["--dropout, --epochs"], "notes something else", done)
        for words, part in ((["--layers", "3"], "layers is 2"), (["--hidden", "9"], "hidden is 8"), (["--norm", "layer"], "norm is rms"),
                            (["--model", "gin"], "model is gcn"), (["--no-bias"], "bias is yes"),
                            (["--head"], "head is no"), (["--task", "links"], "task is nodes")):
            expect_mistake(1, ["evaluate", "--dataset", SBM, "--weights", weights, *words], rf"{words[0].replace('--no-', '--')} .*whose {part}")
        for words in (["--decoder", "mlp"], ["--decoder-hidden", "4"], ["--embedding", "16"]):
            expect_mistake(1, ["evaluate", "--dataset", SBM, "--weights", weights, *words], rf"{words[0]} is for --task .*leave it out")
        for words in (["--heads", "4"], ["--output-heads", "2"], ["--teleport", "0.2"], ["--theta", "0.3"], ["--aggregator", "sum"], ["--propagation-steps", "3"]):
            for command in (["evaluate", "--weights", weights], ["plan"]):
                done = expect_success(1, [*command, "--dataset", SBM, *words])
                require(f"{words[0]} has no effect: it is for --model" in done.stderr, f"{command[0]} does not say that {words[0]} has no effect", done)
        expect_success(1, ["evaluate", "--dataset", SBM, "--weights", weights, "--decoder", "dot"])
        config = os.path.join(folder, "c.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f'[train]\ndataset = "{SBM}"\nlayers = 2\nhidden = 9\n')
        expect_mistake(1, ["evaluate", "--config", config, "--weights", weights], r"--hidden 9: .*whose hidden is 8")
        require("Other options of `orthant train` are checked" in expect_success(1, ["evaluate", "--help"]).stdout, "says nothing of train", done)
        expect_mistake(1, ["evaluate", "--dataset", SBM, "--weights", weights, "--preset", "gat-cora"], r"--model gat: .*whose model is gcn")
        for line in (["--model", "gat", "--layers", "1", "--heads", "4"], ["--layers", "1", "--input-projection", "--hidden", "8"],
                     ["--preset", "gat-cora", "--hidden", "30", "--warmup-steps", "3", "--lr-schedule", "linear"]):
            line = ["--dataset", SBM, *line, "--epochs", "4"]
            expect_success(ranks, ["train", *line, "--save-weights", weights, "--force"])
            done = expect_success(ranks, ["evaluate", *line, "--weights", weights])
        require("gives way to the other options: --heads 6 in place of 8" in done.stderr, "does not say what the network is", done)
        done = expect_mistake(1, ["evaluate", "--dataset", SBM, "--weights", weights, "--hidden", "9"], r"hidden is 30")
        text, tokens, model = (os.path.join(folder, name) for name in ("t.txt", "t.h5", "m.h5"))
        with open(text, "w", encoding="utf-8") as file:
            file.write("to be or not to be\n" * 50)
        expect_success(1, ["tokenize", "--input", text, "-o", tokens])
        small = ["--tokens", tokens, "--layers", "1", "--hidden", "16", "--heads", "2", "--sequence", "8", "--global-batch", "4", "--steps", "1",
                 "--warmup-steps", "0"]
        expect_success(1, ["train-lm", *small, "--save-weights", model])
        done = expect_success(1, ["evaluate-lm", *small, "--weights", model])
        require(re.findall(NOTE, done.stderr) == ["--steps, --warmup-steps"], "notes something else", done)
        for words, message in ((["--feed-forward", "9"], r"--feed-forward 9: .*whose feed_forward is 64"),
                               (["--kv-heads", "1"], r"--kv-heads 1: .*whose kv_heads is 2"), (["--top-k", "1"], r"--top-k is for layers with experts")):
            expect_mistake(1, ["evaluate-lm", *small, "--weights", model, *words], message)
        expect_success(1, ["evaluate-lm", *small, "--weights", model, "--feed-forward", "0", "--kv-heads", "0", "--positions", "0"])
        expect_success(1, ["train-lm", *small, "--feed-forward", "9", "--save-weights", model, "--force"])
        expect_mistake(1, ["evaluate-lm", *small, "--weights", model, "--feed-forward", "0"], r"--feed-forward 0: .*whose feed_forward is 9")
        expect_success(1, ["train-lm", *small, "--save-weights", model, "--force"])
        with open(config, "w", encoding="utf-8") as file:
            file.write("[train-lm]\nlayers = 2\n")
        expect_mistake(1, ["evaluate-lm", "--config", config, "--tokens", tokens, "--weights", model], r"--layers 2: .*whose layers is 1")
        expect_mistake(1, ["evaluate-lm", "--tokens", tokens, "--weights", model, "--heads", "4"], r"--heads 4: .*whose heads is 2")
        expect_mistake(1, ["evaluate-lm", "--tokens", tokens, "--weights", model, "--arch", "llama"], r"--arch llama: .*whose arch is gpt2")


def main():
    on_many = [train_lines, passed_over, own_tables, refused_lines, links_of_stores, preset_and_widths, fixed_grids,
               evaluated_lines]
    jobs = [(ranks, (function,)) for ranks in (1, 4) for function in on_many]
    raise SystemExit(attempt_all(jobs + [(1, (timed_lines,)), (2, (counted_alike,))]))


if __name__ == "__main__":
    main()
