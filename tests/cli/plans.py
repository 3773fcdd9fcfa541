# SPDX-License-Identifier: Apache-2.0
"""orthant plan: grids for graphs and ranks that do not exist, and for a store."""

import json
import os
import re
import tempfile
import time

from program import expect_mistake, expect_success, require

PAPERS = ["--vertices", "111059956", "--nonzeros", "1726745828", "--symmetric", "no", "--widths", "128-128-128-172", "--dropout", "0"]


def plan(ranks, arguments):
    done = expect_success(ranks, ["plan", *arguments, "--json"])
    return [json.loads(line) for line in done.stdout.splitlines()], done


def plan_of_counts(ranks):
    """The figures of the table of expected bytes (tests/models/plan/grid_cost_test.cpp), as text and as JSON."""
    begin = time.monotonic()
    text = expect_success(ranks, ["plan", *PAPERS, "--ranks", "2048", "--schedule", "rows", "--least-width", "32"])
    require(time.monotonic() - begin < 20, "takes longer than a few seconds", text)
    rows = [line.split() for line in text.stdout.splitlines() if line.startswith("rows ")]
    require(len(rows) == 3, "does not show three grids", text)
    require(rows[0][:3] == ["rows", "1x32x4x16", "<=5275.8"] and rows[0][-1] == "32", "shows other figures", text)
    require(text.stdout.count("\n<=: at most, if all rows move; ") == 1, "does not say what <= is", text)
    lines, done = plan(ranks, [*PAPERS, "--ranks", "2048", "--least-width", "1", "--top", "1", "--comm-dtype", "bf16"])
    require([line["schedule"] for line in lines] == ["pmm3d", "rows"], "has not one grid a schedule", done)
    require([line["sent_bytes_are"] for line in lines] == ["exact", "at most"], "takes one for the other", done)
    lines, done = plan(ranks, [*PAPERS, "--ranks", "16", "--least-width", "1", "--top", "1", "--gather", "all", "--schedule", "rows", "--residual"])
    require([line["sent_bytes_are"] for line in lines] == ["exact"], "all rows are counted", done)
    text = expect_success(ranks, ["plan", *PAPERS, "--ranks", "16", "--least-width", "1", "--schedule", "pmm3d", "--residual"])
    require(len(re.findall(r"^pmm3d +\S+ +~[0-9]", text.stdout, re.M)) == 3 and "\n~: on average over graphs" in text.stdout, "does not mark means", text)
    lines, done = plan(ranks, [*PAPERS, "--ranks", "2048", "--schedule", "pmm3d", "--least-width", "1", "--top", "2"])
    require(lines[0]["grid"] == "1x16x8x16" and abs(lines[0]["sent_bytes"] / 1e6 - 6177.71) < 0.01, "sends other bytes", done)
    require(lines[0]["sent_bytes"] <= lines[1]["sent_bytes"], "is not in order", done)


def plan_of_options(ranks):
    """Each option of the model changes the figures as it must."""
    def first(*arguments):
        lines, done = plan(ranks, ["--vertices", "100000", "--nonzeros", "2000000", "--widths", "100-128-128-47", "--ranks", "16",
                                   "--schedule", "rows", "--top", "1", *arguments])
        require(len(lines) == 1, "shows not one grid", done)
        return lines[0], done
    base, done = first() # with dropout, as train
    without, done = first("--dropout", "0")
    require(without["sent_bytes"] < base["sent_bytes"], "keeps no A^ F0 without dropout", done)
    dropped, done = first("--dropout", "0", "--edge-dropout", "0.3")
    require(dropped["sent_bytes"] > without["sent_bytes"], "keeps A^ F0 of other edges", done)
    require(dropped["array_bytes"] > without["array_bytes"], "has no values of dropped edges", done)
    for arguments, key, grows in ((["--trainable-features"], "sent_bytes", True), (["--comm-dtype", "bf16"], "sent_bytes", False),
                                  (["--operand-dtype", "bf16"], "sent_bytes", False),
                                  (["--operand-dtype", "bf16"], "array_bytes", False),
                                  (["--symmetric", "no"], "adjacency_bytes", True), (["--norm", "rms"], "array_bytes", True),
                                  (["--residual"], "array_bytes", True)):
        line, done = first(*arguments)
        require(line[key] > base[key] if grows else line[key] < base[key], f"{arguments} does not change {key}", done)
    line, done = first("--arrays")
    require(sum(line["arrays"].values()) == line["array_bytes"], "loses arrays", done)
    require("orthant::models::csr/columns" in line["arrays"], "has no columns of A^", done)
    require(line["loading_arrays"], "reads nothing of the store", done)
    n, parameters = 1000, 100 * 128 + 128 * 128 + 128 * 47 + 128 + 128 + 47
    (line,), done = plan(ranks, ["--vertices", str(n), "--nonzeros", "9000", "--widths", "100-128-128-47", "--ranks", "1", "--dropout", "0",
                                 "--schedule", "pmm3d"])
    # Two activations, 8 bytes a number forward and 12 backward; a bias; a softmax, its sums, splits and classes; 47 sums.
    of_rows = n * (2 * 20 * 128 + 8 * 47 + (8 * 47 + 13) + 13 + 4 * 47)
    of_columns = 2 * 8 * 128 + 8 * 47
    of_parameters = 32 * parameters # a norm of gradients; Adam reads four arrays and writes three
    require(line["pass_bytes"] == of_rows + of_columns + of_parameters, "counts other passes", done)
    text = expect_success(ranks, ["plan", "--vertices", "100", "--nonzeros", "500", "--widths", "16-8", "--ranks", "4", "--arrays"])
    require(text.stdout.count("arrays of rank 0") == 2, "does not show the arrays of both schedules", text)


def plan_of_store(ranks):
    """A store says its own counts, and the default network."""
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "ring.h5")
        expect_success(ranks, ["generate", "--kind", "ring", "--vertices", "300", "--features", "9", "--classes", "4",
                               "-o", folder + "/ring"])
        expect_success(ranks, ["partition", "--input", folder + "/ring", "-o", store])
        of_store, done = plan(ranks, ["--graph", store, "--ranks", "6"])
        of_counts, _ = plan(ranks, ["--vertices", "300", "--nonzeros", "900", "--widths", "9-128-128-4", "--ranks", "6"])
        require(of_store == of_counts, f"differs from {of_counts}", done)
        expect_mistake(ranks, ["plan", "--graph", store, "--widths", "9-16-5"], r"--widths 9-16-5: the graph has 9 features and 4 classes")
        expect_mistake(ranks, ["plan", "--graph", store, "--vertices", "300"], r"--graph has the counts of its graph")
        bare = os.path.join(folder, "bare.h5")
        expect_success(ranks, ["generate", "--kind", "ring", "--vertices", "300", "--features", "0", "-o", folder + "/bare"])
        expect_success(ranks, ["partition", "--input", folder + "/bare", "-o", bare])
        expect_mistake(ranks, ["plan", "--graph", bare], r"has no features")


MACHINE = """name = "test"
ranks_per_node = {ranks_per_node}
[memory]
bytes = {memory}
bytes_per_second = 1e300
source = "test"
[dense_products]
fp32 = 1e300
of_16_bits = 1e300
source = "test"
[sparse_products]
per_nonzero = {per_nonzero}
source = "test"
[launch]
seconds = 0
source = "test"
[collectives]
call_seconds = 50e-6
step_seconds = 0
inside = [[1, 2, {inside}]]
bytes_per_second_between_nodes = {between}
source = "test"
"""


def write_machine(folder, name, per_nonzero="[[1, 1e-30]]", memory=1e15, ranks_per_node=1024, inside=10e9, between=10e9):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(MACHINE.format(ranks_per_node=ranks_per_node, memory=memory, per_nonzero=per_nonzero, inside=inside, between=between))
    return path


PRODUCTS = ["--vertices", "2449029", "--nonzeros", "126167053", "--widths", "100-128-128-47", "--dropout", "0"]


def plan_of_times(ranks):
    """A machine's seconds order the grids; anything else in its place is one line."""
    with tempfile.TemporaryDirectory() as folder:
        base = [*PRODUCTS, "--ranks", "16", "--schedule", "rows", "--least-width", "1", "--top", "1"]
        (by_bytes,), done = plan(ranks, base)
        # Four products of an epoch: 8 columns twice and 3 twice, or whole rows.
        (cheap,), _ = plan(ranks, [*base, "--machine", write_machine(folder, "cheap.toml")])
        require(cheap["grid"] == by_bytes["grid"], f"differs from {cheap}", done)
        floor = write_machine(folder, "floor.toml", "[[128, 128e-8]]")
        (wide,), done = plan(ranks, [*base, "--machine", floor])
        require(wide["grid"].split("x")[2] == "1" and wide["narrowest_part"] == 47, "splits dear columns", done)
        products = 126167053 / 16 * 2 * (128 + 128) * 1e-8  # 47 columns cost as much as 128
        require(abs(wide["sparse_seconds"] / products - 1) < 1e-3, f"not {products} s of products", done)
        calls = 50e-6 * wide["calls"] + wide["sent_bytes"] / 10e9
        require(abs(sum(wide["call_seconds"].values()) - calls) < 1e-9, "calls do not add up", done)
        terms = calls + sum(wide[term + "_seconds"] for term in ("sparse", "dense", "pass"))
        require(abs(wide["seconds"] - terms) < 1e-9, "seconds do not add up", done)
        text = expect_success(ranks, ["plan", *base, "--machine", floor])
        require("ms: of an epoch on the machine 'test'" in text.stdout, "does not name the machine", text)
        require(f"--grid {wide['grid']} --schedule rows --graph GRAPH.h5 --dropout 0 --layers 3 --hidden 128" in text.stdout, "says not what to run", text)

        # Four ranks to a node and slow links: groups on y stay inside.
        near, _ = plan(ranks, [*PRODUCTS, "--ranks", "4", "--schedule", "pmm3d", "--top", "100", "--machine",
                               write_machine(folder, "near.toml", ranks_per_node=2, between=1e9)])
        sent = {line["grid"]: sum(line["call_seconds"].values()) - 50e-6 * line["calls"] for line in near}
        require(sent["1x1x4x1"] > 10 * sum(line["sent_bytes"] for line in near if line["grid"] == "1x1x4x1") / 10e9,
                f"links of nodes are not shared: {sent}", text)


def plan_for_machine(ranks):
    """Machines that come with Orthant; what does not fit is left out with the reason; bad files are one line."""
    begin = time.monotonic()
    text = expect_success(ranks, ["plan", *PAPERS, "--ranks", "2048", "--machine", "perlmutter"])
    require(time.monotonic() - begin < 20, "takes longer than a few seconds", text)
    require(re.search(r"grids need more than the 40\.0 GB of a rank of perlmutter", text.stdout), "drops nothing", text)
    require(re.search(r"\northant train --grid 1x[0-9x]+ --schedule rows --graph GRAPH\.h5 --dropout 0 ", text.stdout), "no command", text)
    for name in ("frontier", "tuolumne", "alps", "h200-node", "host"):
        lines, done = plan(ranks, [*PRODUCTS, "--ranks", "64", "--machine", name])
        require({line["machine"] for line in lines} == {name} and len(lines) == 6, "not three grids a schedule", done)
    expect_mistake(ranks, ["plan", *PAPERS, "--ranks", "4", "--machine", "perlmutter"],
                   r"6 grids need more than the 40.0 GB of a rank of perlmutter; the least is [0-9.]+ GB: take more ranks")
    expect_mistake(ranks, ["plan", *PRODUCTS, "--machine", "perlmuter"], r"no machine 'perlmuter'; .*did you mean 'perlmutter'")
    train = ["train", "--dataset", "karate", "--epochs", "1", "--machine"]
    with tempfile.TemporaryDirectory() as folder:
        wrong = os.path.join(folder, "wrong.toml")
        good = open(write_machine(folder, "good.toml"), encoding="utf-8").read()
        for content, message in (("{", "not valid TOML"), ("", "name: it needs one"),
                                 (good.replace("call_seconds = 50e-6", "call_seconds = -1"), "call_seconds of .collectives.: -1 must not be"),
                                 (good.replace("fp32 = 1e300", ""), "fp32 of .dense_products.: this constant is missing")):
            with open(wrong, "w", encoding="utf-8") as file:
                file.write(content)
            for command in (["plan", *PRODUCTS, "--machine"], train):
                expect_mistake(ranks, [*command, wrong], rf"machine file '.*wrong\.toml'.*{message}")
        expect_mistake(ranks, [*train, os.path.join(folder, "none.toml")], r"cannot read the table '.*none\.toml'")
        expect_mistake(ranks, [*train, "host", "--schedule", "rows", "--grid", f"1x1x1x{ranks}"], r"--machine .*needs --grid auto or --schedule auto")
        with open(os.path.join(folder, "good.toml"), "w", encoding="utf-8-sig") as file:  # with a byte order mark
            file.write(good)
        done = expect_success(ranks, [*train, os.path.join(folder, "good.toml")])
        require("schedule " in done.stdout, "names no schedule", done)


def plan_without_grids(ranks):
    """A schedule whose grids are all too narrow is named."""
    narrow = ["plan", "--vertices", "1000", "--nonzeros", "5000", "--widths", "8-8-8-8-8", "--ranks", "64",
              "--dropout", "0", "--least-width", "8"]
    done = expect_success(ranks, narrow)
    require(re.search(r"^schedule pmm3d: no grid of 64 ranks .*--least-width 8$", done.stdout, re.M), "does not say so", done)
    expect_mistake(ranks, ["plan", "--vertices", "100", "--nonzeros", "500", "--widths", "16-8", "--ranks", "101"],
                   r"--ranks 101: the graph has 100 vertices, 1 fewer; give --ranks 100 or less")
    expect_mistake(ranks, [*narrow, "--schedule", "pmm3d"], r"schedule pmm3d: no grid of 64 ranks")


def plan_of_batches(ranks):
    """Mini-batches: in order, data groups are counted, --exact is what train's metrics say, and the command that is printed trains."""
    base = [*PRODUCTS, "--ranks", "16", "--mode", "minibatch", "--batch", "100000", "--machine", "perlmutter"]
    lines, done = plan(ranks, [*base, "--top", "1000", "--schedule", "rows", "--least-width", "1"])
    require(len(lines) == 15 + 10 + 6 + 3 + 1, f"{len(lines)} grids", done) # of 16, 8, 4, 2 and 1 ranks of a group
    require(all(a["seconds"] <= b["seconds"] for a, b in zip(lines, lines[1:])), "is not in order", done)
    for line in lines:
        groups = int(line["grid"].split("x")[0])
        require(line["effective_batch"] == 100000 * groups and line["steps"] == -(-25 // groups), "counts other steps", done)
        terms = sum(line[term + "_seconds"] for term in ("sparse", "dense", "pass")) + sum(line["call_seconds"].values())
        require(abs(terms - line["seconds"]) < 1e-9 * line["seconds"], "terms do not add up", done)
    with_graph, _ = plan(ranks, [*base, "--top", "1"])
    without, done = plan(ranks, [*base, "--top", "1", "--eval-every", "0"])
    require(without[0]["array_bytes"] < with_graph[0]["array_bytes"], "evaluations hold nothing", done)
    with tempfile.TemporaryDirectory() as folder:
        store, metrics = os.path.join(folder, "g.h5"), os.path.join(folder, "m.jsonl")
        expect_success(1, ["generate", "--kind", "sbm", "--vertices", "900", "--edges", "9000", "--features", "9", "--classes", "4",
                           "-o", folder + "/g"])
        expect_success(1, ["partition", "--input", folder + "/g", "-o", store])
        small = ["plan", "--graph", store, "--ranks", str(ranks), "--mode", "minibatch", "--batch", "100", "--seed", "5", "--exact"]
        done = expect_success(1, [*small, "--top", "100", "--json"])
        exact = {(line["grid"], line["schedule"]): line for line in map(json.loads, done.stdout.splitlines())}
        command, = re.findall(r"^orthant (train .*?) +# on", expect_success(1, [*small, "--top", "1"]).stdout, re.M)
        require("--batch 100" in command and "--seed 5" in command, "forgets options", done)
        done = expect_success(ranks, [*command.split(), "--epochs", "1", "--metrics", metrics])
        with open(metrics, encoding="utf-8") as file:
            run, epoch = [json.loads(line) for line in file][:2]
        planned = exact[run["grid"], run["schedule"]]
        require(epoch["sent_bytes"] == planned["sent_bytes_of_all"] and epoch["comm_bytes"] == planned["comm_bytes_of_all"],
                f"sends something else than {planned}", done)
        expect_mistake(ranks, [*small[:-5], "--batch", "1000"], r"--batch 1000: the graph has 900 vertices, 100 fewer")
    counts = ["plan", *PRODUCTS, "--ranks", "2"]
    (line, *_), done = plan(ranks, [*counts[1:], "--mode", "minibatch"])
    require(line["batch"] == 1224515, "takes other batches than train", done) # half of the graph
    expect_mistake(ranks, [*counts, "--batch", "5"], r"--batch is for mini-batches: give --mode minibatch")
    expect_mistake(ranks, [*counts, "--exact"], r"--exact is for mini-batches: give --mode minibatch")
    done = expect_success(ranks, [*counts, "--seed", "5"])
    require("ignores what has no effect here: --seed" in done.stderr, "does not say that the seed is idle", done)
    expect_mistake(ranks, [*counts, "--mode", "minibatch", "--batch", "500", "--arrays"], r"leave (it )?out")
    expect_mistake(ranks, [*counts, "--mode", "minibatch", "--batch", "500", "--exact"], r"--exact draws .*give --graph")
    expect_mistake(ranks, [*counts, "--mode", "minibatch", "--batch", "500", "--accumulate", "9000000"],
                   r"no grid of 2 ranks trains batches of 500 vertices")


def measured_grids(ranks):
    """--measure-top keeps the fastest of the grids that it runs, and what follows is to the bit a training on that grid."""
    with tempfile.TemporaryDirectory() as folder:
        text, tokens = os.path.join(folder, "t.txt"), os.path.join(folder, "t.h5")
        with open(text, "w", encoding="utf-8") as file:
            file.write("to be or not to be\n" * 50)
        expect_success(1, ["tokenize", "--input", text, "-o", tokens])
        graph = ["train", "--dataset", "sbm:vertices=300,edges=2000,features=8,classes=3", "--epochs", "2", "--eval-every", "0"]
        for number, base in enumerate((graph, [*graph, "--mode", "minibatch", "--batch", "100"],
                                       ["train-lm", "--tokens", tokens, "--layers", "1", "--hidden", "16", "--heads", "2", "--sequence", "8",
                                        "--global-batch", "8", "--steps", "2", "--eval-every", "0", "--warmup-steps", "1"])):
            def train(name, *arguments):
                path = os.path.join(folder, f"{name}{number}.jsonl")
                done = expect_success(ranks, [*base, *arguments, "--metrics", path])
                with open(path, encoding="utf-8") as file:
                    lines = [json.loads(line) for line in file]
                return lines[0], [line["loss"] for line in lines if line["event"] in ("epoch", "step")], done
            run, losses, done = train("measured", "--measure-top", "3")
            num_open = 3 if ranks > 1 else 2 if number < 2 else 0 # on one rank the schedule alone
            names = [key for key in ("grid", "schedule") if key in run]
            require(("measured" in run) == (num_open > 0), "measures what is not open", done)
            if num_open > 0:
                tried = run["measured"]
                require(len(tried) == num_open and all(one["seconds"] > 0 and one["predicted_seconds"] > 0 for one in tried), "tries others", done)
                best = min(tried, key=lambda one: one["seconds"])
                require(all(best[key] == run[key] for key in names), f"keeps another than {best}", done)
                require(done.stderr.count("s per step, ") == num_open, "logs others", done)
            _, again, done = train("given", *[word for key in names for word in ("--" + key, run[key])])
            require(losses == again, f"{losses} on the same grid", done)
        expect_mistake(ranks, [*graph, "--measure-top", "2", "--grid", f"1x1x1x{ranks}", "--schedule", "rows"],
                       r"--measure-top decides what is left open: it needs --grid auto or --schedule auto")
        expect_mistake(ranks, [*graph, "--measure-top", "-1"], r"--measure-top")


def plan_language_model(ranks):
    """Grids of language models: in order, the command that is printed trains, what does not fit is refused."""
    small = ["--layers", "2", "--hidden", "32", "--heads", "2", "--sequence", "8", "--global-batch", "4", "--no-bias"]
    done = expect_success(ranks, ["plan-lm", "--vocabulary", "65", "--ranks", "8", "--top", "100", "--json", *small])
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    # data x z is at most 4 sequences and x at most 2 heads: of the 20 grids of 2^3 ranks 12 are left.
    require(len(lines) == 12, f"{len(lines)} grids", done)
    require(all(a["seconds"] <= b["seconds"] for a, b in zip(lines, lines[1:])), "is not in order", done)
    require(all(line["expert_axis"] == 1 for line in lines), "names an expert axis", done)
    for line in lines:
        terms = line["dense_seconds"] + line["pass_seconds"] + sum(line["call_seconds"].values()) - line["hidden_seconds"]
        require(abs(terms - line["seconds"]) < 1e-9 * line["seconds"], "terms do not add up", done)
    with tempfile.TemporaryDirectory() as folder:
        text, tokens = os.path.join(folder, "t.txt"), os.path.join(folder, "t.h5")
        with open(text, "w", encoding="utf-8") as file:
            file.write("to be or not to be\n" * 50)
        expect_success(1, ["tokenize", "--input", text, "-o", tokens])
        done = expect_success(1, ["plan-lm", "--tokens", tokens, "--ranks", str(ranks), *small])
        command, = re.findall(r"^orthant (train-lm .*?) +# on", done.stdout, re.M)
        require("--no-bias" in command and "--hidden 32" in command, "forgets options", done)
        expect_success(ranks, [*command.split(), "--steps", "1", "--eval-every", "0"])
        experts = ["--experts", "4", "--expert-axis", "2", "--shared-experts", "1"]
        done = expect_success(1, ["plan-lm", "--tokens", tokens, "--ranks", "4", *small, *experts])
        command, = re.findall(r"^orthant (train-lm .*?) +# on", done.stdout, re.M)
        require("--expert-axis 2" in command and "--shared-experts 1" in command, "forgets the experts", done)
        expect_success(4, [*command.split(), "--steps", "1", "--eval-every", "0"])
    done = expect_success(1, ["plan-lm", "--vocabulary", "65", "--ranks", "8", "--top", "100", "--json", "--simulate", "--machine", "perlmutter", *small, *experts])
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    require(lines and all(line["expert_axis"] == 2 and int(line["grid"].split("x")[0]) % 2 == 0 for line in lines), "no expert axis", done)
    expect_mistake(ranks, ["plan-lm", "--vocabulary", "65", "--ranks", "9", *small, *experts], r"--expert-axis 2 does not divide the 9 ranks")
    expect_mistake(ranks, ["plan-lm", "--vocabulary", "65", "--ranks", "8", *small, "--expert-axis", "2"], r"give --experts, too")
    large = ["plan-lm", "--preset", "llama-7b", "--vocabulary", "32000"]
    expect_mistake(ranks, [*large, "--ranks", "2", "--machine", "perlmutter"], r"plan-lm: \d+ grids need more than the 40.0 GB .* the least is [0-9.]+ GB: take more ranks")
    # Llama has 6,738,415,616 parameters, and Adam two moments of each.
    done = expect_success(1, [*large, "--ranks", "8192", "--global-batch", "8192", "--machine", "perlmutter", "--top", "1"])
    require("a checkpoint has 80.9 GB: the machine file of 'perlmutter' does not say how fast" in done.stdout, "no checkpoint", done)
    done = expect_success(1, [*large, "--ranks", "8192", "--global-batch", "8192", "--machine", "perlmutter", "--top", "1", "--json"])
    require(abs(json.loads(done.stdout)["checkpoint_bytes"] / (12 * 6738415616) - 1) < 1e-6, "another checkpoint", done)
    expect_mistake(ranks, large[:3], r"give either --tokens FILE or --vocabulary N")
    expect_mistake(ranks, [*large, "--accumulate", "3", "--global-batch", "2048"], r"--accumulate 3 does not divide")
    expect_mistake(ranks, ["plan-lm", "--vocabulary", "65", "--hidden", "10"], r"heads")
