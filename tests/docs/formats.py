#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pages of formats in docs/ against what the program writes: formats.py PROGRAM SOURCES

Every field, array, attribute and column that is written is in a table of the page, and everything in the tables is written by some
run here, but for rows marked (device).
"""

import csv
import ctypes
import json
import os
import re
import sys
import tempfile

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", folder) for folder in ("cli", "faults")]
import hdf5  # noqa: E402
from predictions import read_npy, write_npy  # noqa: E402
from program import PROGRAM, Failure, attempt_all, expect_success  # noqa: E402
from stops import finished, start, wait_for  # noqa: E402
import signal  # noqa: E402

DOCS = os.path.join(sys.argv[2], "docs")
SBM = "sbm:vertices=300,edges=2000,features=8,classes=3"
FEW = ["--epochs", "2", "--eval-every", "1", "--hidden", "8"]


def check(condition, what):
    if not condition:
        raise Failure(what)


def rows_of(page):
    """{heading: [first cells of the tables below it, without backticks]}; rows of devices are left out."""
    with open(os.path.join(DOCS, page), encoding="utf-8") as file:
        heading, rows = "", {}
        for line in file:
            if line.startswith("#"):
                heading = line.strip("# \n")
            found = re.match(r"\| `([^`]+)` \|", line)
            if found and "(device)" not in line:
                rows.setdefault(heading, []).append(found.group(1))
    return rows


def require_same(written, documented, what):
    check(set(written) <= set(documented), f"{what}: written and not in the page: {sorted(set(written) - set(documented))}")
    check(set(documented) <= set(written), f"{what}: in the page and not written: {sorted(set(documented) - set(written))}")


def write_splits(folder):
    """A ring with two splits."""
    count, columns = 12, 2
    os.makedirs(folder)
    write_npy(os.path.join(folder, "edge_index.npy"), (2, count), "q", [*range(count), *((v + 1) % count for v in range(count))])
    write_npy(os.path.join(folder, "x.npy"), (count, 1), "f", [v / 8 for v in range(count)])
    write_npy(os.path.join(folder, "y.npy"), (count,), "q", [v % 2 for v in range(count)])
    for part, name in enumerate(("train", "val", "test")):
        write_npy(os.path.join(folder, f"{name}_mask.npy"), (count, columns), "b",
                  [int((v // 2 + split) % 3 == part) for v in range(count) for split in range(columns)])


def write_targets(folder):
    """The same ring with targets of regression."""
    write_splits(folder)
    write_npy(os.path.join(folder, "y.npy"), (12,), "d", [v / 4 for v in range(12)])


def write_edge_features(folder):
    """The same ring with two features of each edge."""
    write_splits(folder)
    write_npy(os.path.join(folder, "edge_attr.npy"), (12, 2), "f", [k / 8 for k in range(24)])


def metrics(_):
    page = rows_of("metrics.md")
    with tempfile.TemporaryDirectory() as scratch:
        def at(name):
            return os.path.join(scratch, name)
        log = ["--metrics", at("m.jsonl")]
        graph, store, weights = at("graph"), at("g.h5"), at("w.h5")
        expect_success(1, ["generate", "--kind", "sbm", "--vertices", "300", "--edges", "2000", "--features", "8", "--classes", "3", "-o", graph])
        expect_success(1, ["partition", "--input", graph, "-o", store])
        lines = []
        def run(ranks, arguments):
            expect_success(ranks, arguments + log)
            with open(at("m.jsonl"), encoding="utf-8") as file:
                lines.extend(json.loads(line) for line in file)
            os.remove(at("m.jsonl"))
        train = ["train", "--graph", store, *FEW]
        run(2, train + ["--save-weights", weights, "--checkpoint", at("c")])
        run(1, ["train", "--graph", store, "--epochs", "3", "--eval-every", "1", "--hidden", "8", "--checkpoint", at("c"), "--resume", "auto"])
        run(1, ["train", "--graph", store, "--epochs", "50", "--eval-every", "1", "--lr", "1e-6", "--patience", "1"])
        run(2, train + ["--schedule", "rows", "--prune", "on", "--comm-dtype", "int8"])
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(cores)})  # of this thread, and of what it starts
        run(2, train + ["--seeds", "2"])
        os.sched_setaffinity(0, cores)
        run(2, train + ["--mode", "minibatch", "--batch", "50", "--roc-auc", "--measure-top", "2", "--stragglers"])
        write_splits(at("masks"))
        expect_success(1, ["partition", "--input", at("masks"), "-o", at("masks.h5")])
        run(1, ["train", "--graph", at("masks.h5"), *FEW, "--split", "all"])
        write_targets(at("targets"))
        expect_success(1, ["partition", "--input", at("targets"), "-o", at("targets.h5")])
        run(1, ["train", "--graph", at("targets.h5"), *FEW, "--save-weights", at("targets-w.h5")])
        run(1, ["evaluate", "--graph", at("targets.h5"), "--weights", at("targets-w.h5")])
        run(2, ["evaluate", "--graph", store, "--weights", weights])
        links = ["--task", "links", "--graph", at("l.h5")]
        expect_success(1, ["partition", "--input", graph, "-o", at("l.h5"), "--edge-split", "0.1,0.1"])
        run(2, ["train", *links, *FEW, "--save-weights", at("lw.h5")])
        run(1, ["evaluate", "--graph", at("l.h5"), "--weights", at("lw.h5")])
        run(2, ["bench", "collectives", "--grid", "1x2x1x1", "--sizes", "4", "--repeat", "2"])
        with open(at("text.txt"), "w", encoding="utf-8") as file:
            file.write("to be or not to be " * 40)
        expect_success(1, ["tokenize", "--input", at("text.txt"), "-o", at("t.h5")])
        model = ["train-lm", "--tokens", at("t.h5"), "--layers", "1", "--hidden", "8", "--heads", "2", "--sequence", "8", "--eval-every", "1"]
        run(2, model + ["--steps", "2", "--grid", "2x1x1x1", "--comm-dtype", "gradients=int8", "--save-weights", at("lm.h5")])
        run(1, model + ["--steps", "50", "--lr", "1e-12", "--patience", "1"])
        run(2, model + ["--steps", "1", "--experts", "2"])
        with open(at("loads.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines if "experts" in line)
        run(2, model + ["--steps", "1", "--experts", "2", "--grid", "2x1x1x1", "--expert-axis", "2", "--expert-placement", "balanced",
                        "--expert-loads", at("loads.jsonl")])
        run(2, ["evaluate-lm", "--tokens", at("t.h5"), "--weights", at("lm.h5")])
        for stopped, event, command in ((at("s.jsonl"), "epoch", ["train", "--graph", store, "--epochs", "100000000"]),
                                        (at("s-lm.jsonl"), "step", model + ["--steps", "1000000"])):
            job = start(1, command + ["--metrics", stopped])
            wait_for(job, stopped, event, 3)
            job.send_signal(signal.SIGINT)
            done = finished(job)
            check(done.returncode == 130, f"is not stopped by SIGINT: status {done.returncode}\n{done.stdout}{done.stderr}")
            with open(stopped, encoding="utf-8") as file:
                lines.extend(json.loads(line) for line in file)
    written, command = {}, None
    for line in lines:
        kind = line["event"] if line["event"] != "bench" else f"bench {line['bench']}"
        command = line["command"] if kind == "run" else command
        if kind in ("done", "stopped") and command == "train-lm":
            kind += " of train-lm"
        written.setdefault(kind, set()).update(line)
    check("resumed" in written["run"] and "kept" in written["run"], "no such runs")
    for kind in ("run", "epoch", "done", "stopped", "stragglers", "seeds", "evaluate", "step", "eval", "done of train-lm",
                 "stopped of train-lm", "evaluate-lm", "bench collectives"):
        require_same(written[kind] | {"event"}, page[kind] + ["event"], kind)
    check(set(written) <= set(page), f"events {sorted(written)}, pages {sorted(page)}")
    # Nested scores have the names of an epoch.
    scores = {name for line in lines if line["event"] == "done" for part in ("last", "best") for name in line.get(part, {})}
    check(scores <= set(page["epoch"]), f"scores {scores}")


def trace(ranks):
    page = rows_of("trace.md")
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "t.json")
        expect_success(ranks, ["train", "--dataset", SBM, *FEW, "--trace", path])
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    require_same(found, page["Traces: what `--trace FILE.json` writes"], "the object")
    for heading, kind in (("Slices", "X"), ("Names", "M")):
        events = [event for event in found["traceEvents"] if event["ph"] == kind]
        names = {name for event in events for name in event}
        require_same(names | ({"args"} if ranks == 1 else set()), page[heading], f"{heading} on {ranks}")
    check({event["ph"] for event in found["traceEvents"]} == {"X", "M"}, "kinds of events")
    arguments = {name for event in found["traceEvents"] for name in event.get("args", {})}
    check(arguments <= {"bytes", "name", "sort_index", "labels"}, f"args {arguments}")


LIBRARY = []


def attributes(path):
    """Of the root."""
    names = []
    with hdf5.File(LIBRARY[0], path) as file:
        index = ctypes.c_uint64()
        while True:
            try:
                identity = LIBRARY[0].open("H5Aopen_by_idx", file.id, b"/", ctypes.c_int(0), ctypes.c_int(0), index, ctypes.c_int64(0), ctypes.c_int64(0))
            except hdf5.Hdf5Error:
                return names
            text = ctypes.create_string_buffer(256)
            LIBRARY[0].call("H5Aget_name", identity, ctypes.c_size_t(256), text, result=ctypes.c_ssize_t)
            LIBRARY[0].call("H5Aclose", identity)
            names.append(text.value.decode())
            index.value += 1


def arrays(path):
    with hdf5.File(LIBRARY[0], path) as file:
        return file.names()


def facts_of_checkpoint(path):
    with hdf5.File(LIBRARY[0], path) as file:
        return json.loads(bytes(value % 256 for value in file.read("/facts").values).rstrip(b"\0"))


def weights(_):
    page = rows_of("weights.md")
    documented = {heading: set(rows) for heading, rows in page.items()}
    with tempfile.TemporaryDirectory() as scratch:
        def at(name):
            return os.path.join(scratch, name)
        train = ["train", "--dataset", SBM, *FEW]
        expect_success(1, train + ["--save-weights", at("a.h5"), "--norm", "rms", "--input-projection", "--head"])
        graph, store = at("graph"), at("g.h5")
        expect_success(1, ["generate", "--kind", "ring", "--vertices", "60", "--features", "4", "--classes", "2", "-o", graph])
        with open(os.path.join(graph, "classes.csv"), "w", encoding="utf-8") as file:
            file.write("id,class\n0,a\n1,b\n")
        expect_success(1, ["partition", "--input", graph, "-o", store])
        expect_success(2, ["train", "--graph", store, *FEW, "--save-weights", at("b.h5"), "--trainable-features"])
        expect_success(1, train + ["--save-weights", at("s.h5"), "--model", "sage", "--residual", "project", "--jump", "cat"])
        expect_success(2, train + ["--checkpoint", at("c")])
        expect_success(1, train + ["--checkpoint", at("d"), "--optimizer", "sgd"])
        expect_success(1, train + ["--save-weights", at("i.h5"), "--model", "gin", "--norm", "batch"])
        for model in ("appnp", "gcnii"):
            expect_success(1, train + ["--save-weights", at(f"{model}.h5"), "--model", model])
        expect_success(1, train + ["--save-weights", at("w.h5"), "--model", "gat", "--heads", "1"])
        write_edge_features(at("edges"))
        expect_success(1, ["partition", "--input", at("edges"), "-o", at("e.h5"), "--edge-features", "keep"])
        expect_success(1, ["train", "--graph", at("e.h5"), *FEW, "--model", "gat", "--save-weights", at("ew.h5")])
        expect_success(1, ["partition", "--input", graph, "-o", at("l.h5"), "--edge-split", "0.1,0.1"])
        expect_success(1, ["train", "--task", "links", "--graph", at("l.h5"), *FEW, "--save-weights", at("lw.h5")])
        expect_success(1, ["train", "--task", "links", "--graph", at("l.h5"), *FEW, "--save-weights", at("lm.h5"), "--decoder", "mlp"])
        with open(at("triples.tsv"), "w", encoding="utf-8") as file:
            file.writelines(f"{v}\tr{v % 2}\t{(v + 1) % 9}\n" for v in range(9))
        expect_success(1, ["partition", "--input", at("triples.tsv"), "--format", "triples", "-o", at("r.h5"), "--random-features", "3",
                           "--random-labels", "2", "--random-split", "0.5,0.2,0.3"])
        expect_success(1, ["train", "--graph", at("r.h5"), *FEW, "--model", "rgcn", "--bases", "2", "--save-weights", at("rw.h5")])
        write_types(at("types"))
        expect_success(1, ["partition", "--input", at("types"), "-o", at("y.h5")])
        expect_success(1, ["train", "--graph", at("y.h5"), *FEW, "--model", "rgcn", "--save-weights", at("yw.h5")])
        expect_success(1, ["train", "--graph", at("r.h5"), *FEW, "--model", "rgat", "--target-weights", "--save-weights", at("tw.h5")])
        paths = [at(name) for name in ("ew.h5", "tw.h5", "yw.h5", "rw.h5", "a.h5", "b.h5", "s.h5", "i.h5", "appnp.h5", "gcnii.h5", "w.h5", "lw.h5", "lm.h5")]
        checkpoints = [os.path.join(at(folder), "latest") for folder in "cd"]
        written = {re.sub(r"layer\d+", "layerN", name) for path in paths for name in arrays(path)}
        require_same(written, documented["Arrays of weights"], "arrays of weights")
        require_same({name for path in paths for name in attributes(path)}, documented["Attributes of \"/\""], "attributes of weights")
        extra = {re.sub(r"^(/optimizer/)\w+/.*", r"\1exp_avg/NAME", re.sub(r"^(/best)/.*", r"\1/NAME", name))
                 for path in checkpoints for name in arrays(path) if not name.startswith("/parameters/")}
        members = set(facts_of_checkpoint(checkpoints[0]))
        require_same(extra | members, documented["Checkpoints"], "checkpoints")
        lm = [at("gpt2.h5"), at("llama.h5"), at("experts.h5"), at("lora.h5")]
        with open(at("text.txt"), "w", encoding="utf-8") as file:
            file.write("to be or not to be " * 40)
        expect_success(1, ["tokenize", "--input", at("text.txt"), "-o", at("t.h5")])
        for path, more in zip(lm, (["--arch", "gpt2", "--bias"], ["--arch", "llama", "--qk-norm"], ["--arch", "gpt2", "--experts", "2", "--shared-experts", "1", "--balance", "bias"],
                                   ["--init-from", at("gpt2.h5"), "--lora-rank", "1"])):
            expect_success(1, ["train-lm", "--tokens", at("t.h5"), "--layers", "1", "--hidden", "8", "--heads", "2", "--sequence", "8", "--steps", "1",
                               "--warmup-steps", "0", "--save-weights", path, *more])
        written = {re.sub(r"experts\.\d+\.", "experts.E.", re.sub(r"/h\.\d+\.", "/h.L.", name)) for path in lm for name in arrays(path)}
        biases = {name for name in written if name.endswith(".bias") and "router" not in name}
        check(len(biases) == 7, f"biases {sorted(biases)}")  # 4 of linear layers, 3 of norms
        norms = {"/parameters/h.L.ln_2.weight", "/parameters/ln_f.weight", "/parameters/h.L.attn.k_norm.weight"}
        check(norms <= written, f"norms among {sorted(written)}")
        require_same(written - biases - norms | {"/parameters/...bias"}, documented["Arrays of language models"], "arrays of language models")
        for path in lm:
            of_adapters = set() if "lora" in path else {"lora_rank", "lora_alpha", "lora_targets"}
            require_same(set(attributes(path)) | of_adapters, documented["Attributes of \"/\" of language models"], "attributes of language models")
        kinds = {name.split("/")[2] for path in checkpoints for name in arrays(path) if name.startswith("/optimizer/")}
        check(kinds == {"exp_avg", "exp_avg_sq", "momentum_buffer"}, f"arrays of optimizers {kinds}")


def predictions(_):
    page = rows_of("predictions.md")
    with tempfile.TemporaryDirectory() as scratch:
        def at(name):
            return os.path.join(scratch, name)
        expect_success(1, ["generate", "--kind", "ring", "--vertices", "60", "--features", "4", "--classes", "2", "-o", at("graph")])
        expect_success(1, ["partition", "--input", at("graph"), "-o", at("g.h5")])
        expect_success(1, ["train", "--graph", at("g.h5"), *FEW, "--save-weights", at("w.h5")])
        evaluate = ["evaluate", "--graph", at("g.h5"), "--weights", at("w.h5"), "--force", "--predictions"]
        expect_success(2, evaluate + [at("p.h5"), "--probabilities", "--embeddings", "1"])
        require_same({*arrays(at("p.h5")), "/class_names/offsets", "/class_names/text"}, page["FILE.h5"], "arrays")
        expect_success(2, evaluate + [at("p.csv"), "--probabilities", "--embeddings", "1"])
        with open(at("p.csv"), encoding="utf-8", newline="") as file:
            columns = next(csv.reader(file))
        require_same({re.sub(r"^([pec])\d+$", r"\1J", name) for name in columns} | {"cJ", "yJ", "name", "type"}, page["FILE.csv"], "columns")
        for arguments, shape in (([], (60,)), (["--probabilities"], (60, 2)), (["--embeddings", "0"], (60, 8))):
            expect_success(2, evaluate + [at("p.npy"), *arguments])
            check(read_npy(at("p.npy"))[0] == shape, f"shape {read_npy(at('p.npy'))[0]}")


def write_types(folder):
    """A graph of two types, one of them without features."""
    for name, shape, letter, values in (("a__r__b/edge_index", (2, 3), "q", [0, 1, 2, 0, 1, 0]), ("b__s__a/edge_index", (2, 2), "q", [0, 1, 2, 0]),
                                        ("b/x", (2, 2), "f", [0.5, 1, 2, 4]), ("b/y", (2,), "q", [0, 1]), ("b/train_idx", (2,), "q", [0, 1])):
        path = os.path.join(folder, name + ".npy")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_npy(path, shape, letter, values)


def store(_):
    page = rows_of("store.md")
    with tempfile.TemporaryDirectory() as scratch:
        def at(name):
            return os.path.join(scratch, name)
        expect_success(1, ["generate", "--kind", "ring", "--vertices", "60", "--features", "4", "--classes", "2", "-o", at("graph")])
        with open(at("weighted.txt"), "w", encoding="utf-8") as file:
            file.write("0 1 0.5\n1 2 2\n2 0 1\n")
        os.mkdir(at("typed"))
        with open(at("typed/triples.txt"), "w", encoding="utf-8") as file:
            file.write("a r b\nb s a\n")
        write_npy(at("typed/x.npy"), (2, 1), "d", [0.1, 0.2])  # no fp32 numbers
        write_splits(at("masks"))
        write_npy(at("masks/y.npy"), (12,), "q", [10, 20] * 6)  # names
        write_types(at("types"))
        write_edge_features(at("edges"))
        jobs = [["--input", at("edges"), "--edge-features", "keep"], ["--input", at("types")], ["--input", at("masks")], ["--input", at("graph")], ["--input", at("graph"), "--edge-split", "0.2,0.2"], ["--input", at("typed")], ["--input", at("weighted.txt"), "--directed", "--random-labels", "2", "--random-split", "0.5,0.2,0.3"]]
        written, facts, named = set(), set(), set()
        for place, arguments in enumerate(jobs):
            path = at(f"{place}.h5")
            expect_success(1, ["partition", "-o", path, *arguments])
            named.update(attributes(path))
            with hdf5.File(LIBRARY[0], path) as file:
                facts.update(json.loads(file.text("facts")))
            for name in arrays(path):
                name = re.sub(r"/p[12]\b", "/ORDER", re.sub(r"/(even|odd)/", "/PARITY/", name))
                written.add("/checksums/ARRAY" if name.startswith("/checksums/") else name)
        documented = {name for name in page["Arrays"] if not name.startswith("/features/sparse")}
        require_same(written, documented, "arrays")
        require_same(facts, page["Facts"], "facts")
        require_same(named, page["Attributes of \"/\""], "attributes")


def tokens(_):
    page = rows_of("tokens.md")
    with tempfile.TemporaryDirectory() as scratch:
        def at(name):
            return os.path.join(scratch, name)
        with open(at("text.txt"), "w", encoding="utf-8") as file:
            file.write("abba, \u00e9")
        expect_success(2, ["tokenize", "--input", at("text.txt"), "-o", at("t.h5"), "--train-fraction", "0.5"])
        require_same(arrays(at("t.h5")), page["Arrays"], "arrays")
        require_same(attributes(at("t.h5")), page["Attributes of \"/\""], "attributes")
        with hdf5.File(LIBRARY[0], at("t.h5")) as file:
            facts = json.loads(file.text("facts"))
            train, ends = (list(file.read(name).values) for name in ("/tokens/train", "/vocabulary/ends"))
            texts = bytes(value % 256 for value in file.read("/vocabulary/bytes").values)
        require_same(facts, page["Facts"], "facts")
        check(train == [2, 3, 3] and ends == [1, 2, 3, 4, 6] and texts.decode() == " ,ab\u00e9", f"{train}, {ends}, {texts}")

        def mixed(bits):
            bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9 % 2**64
            bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb % 2**64
            return bits ^ (bits >> 31)

        def checksum(numbers):  # as the page says it
            return sum(mixed((number + 0x9e3779b97f4a7c15 * (i + 1)) % 2**64) for i, number in enumerate(numbers)) % 2**64
        check(facts["train"] == {"tokens": 3, "bytes": 3, "sum": f"{checksum(train):016x}"}, f"facts {facts['train']}")
        check(facts["vocabulary_sum"] == f"{(checksum(texts) + checksum(ends)) % 2**64:016x}", "checksum of the vocabulary")


def main():
    path = hdf5.library_of(PROGRAM)
    if path is None:
        print("skipped: HDF5 is not a library of the program's own")
        return 77
    LIBRARY.append(hdf5.Library(path))
    jobs = [(1, (metrics,)), (1, (trace,)), (2, (trace,)), (1, (weights,)), (1, (predictions,)), (1, (store,)), (1, (tokens,))]
    # The library is called from one thread.
    return max(attempt_all([job]) for job in jobs)


if __name__ == "__main__":
    raise SystemExit(main())
