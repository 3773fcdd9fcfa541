#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""orthant study on this machine: on_this_machine.py PROGRAM

Numbers of the report are computed again from the metrics of the points.
"""

import json
import math
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from program import MPIRUN, attempt_all, expect_mistake, expect_success, run  # noqa: E402
from study_runs import check, expect_exact_bytes, lines_of, read, study, write  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"
STUDY = """
name = "small"
[jobs]
predict = "host"
[[strong]]
name = "graph"
graphs = ["sbm:vertices=300,edges=2000,features=8,classes=3"]
ranks = [1, 2, 4]
schedules = ["pmm3d", "rows"]
options = "--epochs 4 --eval-every 0 --hidden 8"
rows_options = "--gather all"
[[strong]]
name = "missing"
graphs = ["gone.h5"]
ranks = [1]
options = "--epochs 3 --eval-every 0 --hidden 8"
[[weak]]
name = "growing"
generate = "rmat"
vertices_per_rank = 200
edges_per_rank = 1000
features = 8
classes = 3
ranks = [1, 2]
schedules = ["rows"]
options = "--epochs 3 --eval-every 0 --hidden 8"
"""
LANGUAGE = """
name = "words"
[jobs]
predict = "perlmutter"
[[strong]]
name = "axes"
command = "train-lm"
tokens = "t.h5"
ranks = [2]
grids = ["1xPx1x1", "Px1x1x1"]
repeats = 2
options = "--layers 1 --hidden 8 --heads 2 --sequence 8 --steps 3 --eval-every 0 --warmup-steps 1"
[[weak]]
name = "batch"
command = "train-lm"
tokens = "t.h5"
ranks = [1, 2]
sequences_per_rank = 4
options = "--layers 1 --hidden 8 --heads 2 --sequence 8 --steps 3 --eval-every 0"
"""


def expect_axis(texts, of_x):
    """The numbers of a logarithmic axis lie where they should. Returns the function from places to values."""
    pairs = sorted((math.log(float(text.text)), float(text.get("x" if of_x else "y"))) for text in texts)
    (a, x), (b, y) = pairs[0], pairs[-1]
    check(len(pairs) >= 3, "an axis with few numbers")
    for value, place in pairs:
        check(abs(x + (value - a) * (y - x) / (b - a) - place) < 0.2, f"{math.exp(value)} is not at its place")
    return lambda place: math.exp(a + (place - x) * (b - a) / (y - x))


def expect_curve(path, points):
    """The first panel's first curve is that of the points (ranks, seconds)."""
    root = ElementTree.parse(path).getroot()
    texts = list(root.iter(f"{SVG}text"))
    titles = [i for i, text in enumerate(texts) if text.get("font-weight") == "bold"]
    panel = texts[titles[0] + 1:titles[1]]
    check(texts[titles[0]].text == "seconds per epoch", f"the first panel is {texts[titles[0]].text}")
    efficiencies = [text.text for text in texts[titles[1] + 1:titles[2]] if text.get("text-anchor") == "end"]
    check("0" in efficiencies and "100" in efficiencies, f"efficiencies from {efficiencies}")
    x_of = expect_axis([text for text in panel if text.get("text-anchor") == "middle"], True)
    shifted = [text for text in panel if text.get("text-anchor") == "end"]
    y_of = expect_axis(shifted, False)
    curve = next(line for line in root.iter(f"{SVG}polyline") if line.get("class").startswith("r0") and line.get("stroke-dasharray") is None)
    found = [tuple(map(float, pair.split(","))) for pair in curve.get("points").split()]
    check(len(found) == len(points), f"{len(found)} points, not {len(points)}")
    for (x, y), (ranks, seconds) in zip(found, points):
        check(abs(x_of(x) / ranks - 1) < 0.01 and abs(y_of(y + 4.5) / seconds - 1) < 0.03,
              f"({x_of(x)}, {y_of(y + 4.5)}) is not ({ranks}, {seconds})")


def from_file_to_page(_):
    with tempfile.TemporaryDirectory() as folder:
        at = lambda *names: os.path.join(folder, *names)
        file = at("small.toml")
        write(file, STUDY)
        check("9 points: 9 to do" in study("status", file), "does not know what is to do")

        said = study("submit", file, "--here", status=1)
        check("8/9 done" in said or "9/9 done" in said, f"does not tell of each point: {said}")
        status = study("status", file)
        check("9 points: 8 done, 1 failed" in status, f"miscounts: {status}")
        check(re.search(r"failed  missing-\S+: status 2: orthant: error: .*gone\.h5", status), f"does not say why: {status}")
        check(os.listdir(at("small.study", "parts")) == [], "leaves parts behind")

        # The point's cause is mended, and a killed try has left its part: only what is missing is run.
        results = at("small.study", "results")
        before = {name: os.stat(os.path.join(results, name)).st_mtime_ns for name in os.listdir(results)}
        check(len(before) == 8, f"{len(before)} results")
        expect_success(1, ["partition", "--generate", "sbm", "--vertices", "100", "--edges", "500", "--features", "4", "--classes", "2",
                           "-o", at("gone.h5")])
        lost = next(name for name in before if name.startswith("growing"))
        os.remove(os.path.join(results, lost))
        write(at("small.study", "parts", lost.removesuffix(".jsonl") + ".1.2.jsonl"), '{"event":"run"')
        said = study("submit", file, "--here")
        check("9 points: 7 done, 1 failed, 1 to do, 2 to start" in said and "2/2 done" in said, f"runs others: {said}")
        after = {name: os.stat(os.path.join(results, name)).st_mtime_ns for name in os.listdir(results)}
        check(len(after) == 9 and all(after[name] == before[name] for name in before if name != lost), "a result was replaced")
        check("9 points: 9 done, 0 to start" in study("submit", file, "--here"), "starts points again")

        check("9 points: 9 done" in study("collect", file), "collects less")
        collected = lines_of(at("small.study", "results.jsonl"))
        check(len({line["key"] for line in collected}) == len(collected) == 9, "a point is counted twice")
        table = study("report", file)
        expect_numbers(at, collected, table)
        expect_elsewhere(at, file)

        write(at("small.study", "results", collected[0]["key"] + ".jsonl"), "not metrics\n")
        study("collect", file)
        again = lines_of(at("small.study", "results.jsonl"))
        check([line["state"] for line in again] == ["failed"] + 8 * ["done"], "one bad result loses others")
        check("is no file of metrics" in again[0]["reason"], f"the reason is {again[0]['reason']}")


def expect_numbers(at, collected, table):
    medians = {}
    for line in collected:
        epochs = [event for event in lines_of(at("small.study", "results", line["key"] + ".jsonl")) if event["event"] == "epoch"][1:]
        check(line["seconds"] == [epoch["seconds"] for epoch in epochs], f"{line['key']}: other seconds")
        check(line["sent_bytes"] == epochs[-1]["sent_bytes"], f"{line['key']}: other bytes")
        check(line["predicted"]["seconds"] > 0 and line["predicted"]["machine"] == "host", f"{line['key']} is not predicted")
        expect_exact_bytes(line)
        if line["experiment"] == "graph":
            medians[line["schedule"], line["ranks"]] = statistics.median(line["seconds"])
    for (schedule, ranks), seconds in medians.items():
        row = re.search(rf"^{schedule} +{ranks}\*? +\S+ +{schedule} +1 +(\S+) +\S+ \.\. \S+ +(\S+) +(\d+) % ", table, re.M)
        check(row, f"no row of {schedule} on {ranks}: {table}")
        speed_up = medians[schedule, 1] / seconds
        for found, expected, error in ((row[1], 1e3 * seconds, 1e-3), (row[2], speed_up, 0.02), (row[3], 100 * speed_up / ranks, 0.06)):
            check(abs(float(found) - expected) <= max(error * expected, 0.51 if error > 0.05 else 0.006), f"{found}, not {expected}")
    expect_curve(at("small.study", "report", "graph.svg"), [(ranks, medians["pmm3d", ranks]) for ranks in (1, 2, 4)])


def expect_elsewhere(at, file):
    """The study file and the collected results make the same report; points that are missing are named."""
    os.mkdir(at("other"))
    shutil.copy(file, at("other", "small.toml"))
    shutil.copy(at("small.study", "results.jsonl"), at("other", "r.jsonl"))
    study("report", at("other", "small.toml"), "--results", at("other", "r.jsonl"), "-o", at("other", "page"))
    for name in ("report.html", "graph.svg", "growing.svg", "missing.svg"):
        check(read(at("other", "page", name)) == read(at("small.study", "report", name)), f"{name} differs elsewhere")
    page = read(at("other", "page", "report.html"))
    check(ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>")) is not None, "the page is not well-formed")
    check(not re.search(r"(?:src|href)=", page), "the page needs other files")
    lines = read(at("other", "r.jsonl")).splitlines()
    cut = json.loads(lines[0])
    write(at("other", "r.jsonl"), "\n".join([json.dumps({key: cut[key] for key in cut if key not in ("seconds", "predicted")} |
                                                        {"state": "failed", "reason": "out of <memory>"})] + lines[1:]) + "\n")
    table = study("report", at("other", "small.toml"), "--results", at("other", "r.jsonl"), "-o", at("other", "page"))
    check(f"{cut['key']}  failed  out of <memory>" in table, f"does not name the missing point: {table}")
    check("out of &lt;memory&gt;" in read(at("other", "page", "report.html")), "nor on the page")


def language_models(_):
    with tempfile.TemporaryDirectory() as folder:
        at = lambda *names: os.path.join(folder, *names)
        write(at("text.txt"), "to be or not to be " * 40)
        expect_success(1, ["tokenize", "--input", at("text.txt"), "-o", at("t.h5")])
        write(at("words.toml"), LANGUAGE)
        study("submit", at("words.toml"), "--here")
        study("collect", at("words.toml"))
        collected = lines_of(at("words.study", "results.jsonl"))
        check(len(collected) == 6, f"{len(collected)} points")
        check({(line["curve"], line["grid"]) for line in collected if line["experiment"] == "axes"} ==
              {("grid 1xPx1x1", "1x2x1x1"), ("grid Px1x1x1", "2x1x1x1")}, "other grids")
        for line in collected:
            check(len(line["seconds"]) == 2 and line["predicted"]["sent_bytes"] == line["sent_bytes"], f"{line['key']}: {line}")
        table = study("report", at("words.toml"))
        check("axes (strong scaling): milliseconds per step" in table and "batch (weak scaling): " in table, f"says {table}")
        check(len(re.findall(r"^grid \S+ +2\*? +\S+ +- +2 ", table, re.M)) == 2, f"repeats are not together: {table}")


def figures_of_the_documentation(_):
    """They are what `report` makes of the results beside them, and say that they are emulated."""
    at = lambda *names: os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "docs", "figures", *names)
    with tempfile.TemporaryDirectory() as folder:
        study("report", at("emulated.toml"), "--results", at("emulated.jsonl"), "-o", folder)
        drawn = sorted(name for name in os.listdir(folder) if name.endswith(".svg"))
        shown = sorted(name for name in os.listdir(at()) if name.endswith(".svg") and name != "grid.svg")  # scripts/readme_picture.py
        check(drawn == shown, f"other figures: {drawn}")
        for name in drawn:
            check(read(os.path.join(folder, name)) == read(at(name)), f"docs/figures/{name} is not what its results give")
            check("seconds are virtual: emulated perlmutter-network.toml" in read(at(name)), f"{name} is not marked as emulated")


FAKE_FLUX = """#!/usr/bin/env bash
echo "$@" >> {folder}/calls
case $1 in
batch) shift; for word; do case $word in --job-name=*) echo "f42|RUN||${{word#*=}}" >> {folder}/queue ;; esac; done; while [ "${{1#--}}" != "$1" ]; do shift; done; echo f42; nohup bash "$@" > /dev/null 2>&1 & ;;
jobs) [ -e {folder}/busy ] && cat {folder}/queue ;;
run) while [ "$1" != -n ]; do shift; done; shift; exec {mpirun} "$@" ;;
esac
exit 0
"""


def under_flux(_):
    """By a stand-in for `flux` that runs jobs at once."""
    with tempfile.TemporaryDirectory() as folder:
        at = lambda *names: os.path.join(folder, *names)
        os.mkdir(at("bin"))
        write(at("bin", "flux"), FAKE_FLUX.format(folder=folder, mpirun=" ".join(MPIRUN)))
        write(at("bin", "module"), "#!/bin/sh\n")
        for name in ("flux", "module"):
            os.chmod(at("bin", name), 0o755)
        path = {"PATH": at("bin") + ":" + os.environ["PATH"]}
        write(at("f.toml"), 'name = "f"\n[jobs]\nmachine = "tuolumne"\nranks_per_node = 2\noptions = ["--bank=b"]\n[[strong]]\nname = "s"\n'
                            'graphs = ["karate"]\nranks = [1, 2, 3]\ngrids = ["1xPx1x1"]\noptions = "--epochs 2 --eval-every 0"\n')
        write(at("busy"), "")
        said = study("submit", at("f.toml"), **path)
        check("job f42: 2 points" in said and "job f42: 1 points" in said, f"says {said}")
        calls = read(at("calls"))
        check("--nodes=1 " in calls and "--nodes=2 " in calls and "--bank=b" in calls, f"calls {calls}")
        for _ in range(300):
            if "3 done" in study("status", at("f.toml"), **path):
                break
            time.sleep(0.2)
        os.remove(at("busy"))
        check("3 points: 3 done" in study("status", at("f.toml"), **path), read(at("calls")))
        # Jobs that ended without a result are lost, and start again.
        for name in os.listdir(at("f.study", "results")):
            os.remove(at("f.study", "results", name))
        check("3 points: 3 lost" in study("status", at("f.toml"), **path), "does not see that jobs are gone")


def numbers_given_twice(_):
    """By a stand-in for Slurm that has forgotten its jobs, and calls every job 7."""
    with tempfile.TemporaryDirectory() as folder:
        at = lambda *names: os.path.join(folder, *names)
        os.mkdir(at("bin"))
        write(at("bin", "sbatch"), f'#!/bin/sh\necho "$@" >> {at("calls")}\necho "7;cluster"\n')
        write(at("bin", "squeue"), f"#!/bin/sh\ncat {at('queue')}\n")
        for name in ("sbatch", "squeue"):
            os.chmod(at("bin", name), 0o755)
        write(at("queue"), "7_0|RUNNING|None|another one\n")
        path = {"PATH": at("bin") + ":" + os.environ["PATH"]}
        write(at("s.toml"), 'name = "s"\n[jobs]\nranks_per_node = 1\noptions = ["--job-name=x"]\n'
                            '[[strong]]\nname = "s"\ngraphs = ["karate"]\nranks = [1, 2]\nrepeats = 2\n')
        said = study("submit", at("s.toml"), **path)
        check(said.count("job 7: 2 points") == 2, f"says {said}")
        names = re.findall(r"--job-name=(s-\w+) ", read(at("calls")))
        check(len(names) == len(set(names)) == 2, f"jobs are called {names}")
        check("4 points: 4 lost" in study("status", at("s.toml"), **path), "takes somebody else's job 7 for its own")
        # The second job 7 is there: its log tells why a point of it is lost, and not that of the first one.
        write(at("queue"), f"7_0|PENDING|launch failed requeued held|{names[1]}\n7_1|PENDING|Resources|{names[1]}\n")
        write(at("s.study", "logs", f"{names[0]}-7_0.log"), "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT NOON ***\n")
        status = study("status", at("s.toml"), **path)
        check("4 points: 3 lost, 1 waiting" in status, f"miscounts: {status}")
        check(re.findall(r"lost    s-\S+-p(\d)-\S+: .*CANCELLED", status) == ["1"], f"whose job was cancelled? {status}")
        check(re.findall(r"lost    s-\S+-p(\d)-\S+: its job 7 does not start: launch failed requeued held", status) == ["2"], f"what is held? {status}")
        said = study("submit", at("s.toml"), **path)
        check("3 lost, 1 waiting, 3 to start" in said and "job 7: 2 points" in said and "job 7: 1 points" in said, f"starts others: {said}")
        write(at("queue"), "".join(f"7_{task}|RUNNING|None|{name}\n" for name in re.findall(r"--job-name=(s-\w+) ", read(at("calls"))) for task in (0, 1)))
        check("4 points: 4 running" in study("status", at("s.toml"), **path), "does not see that they run")


def expect_refusal(file, text):
    done = run(1, ["study", "submit", file, "--machine", "tuolumne"])
    check(done.returncode == 2 and text in done.stderr, f"{done.returncode}: {done.stderr}")


def mistakes(_):
    with tempfile.TemporaryDirectory() as folder:
        at = lambda *names: os.path.join(folder, *names)
        strong = '[[strong]]\nname = "s"\ngraphs = ["karate"]\nranks = [2]\n'
        for text, pattern in (
                ('name = "a"\n', r"has no experiment; write a table \[\[strong\]\]"),
                ("name = ", r"line 1: not valid TOML"),
                ('\ufeffname = "a"\n', r"has no experiment"),  # a byte order mark is no letter
                (strong, r"name: '' must be of letters"),
                ('name = "a b"\n' + strong, r"'a b' must be of letters"),
                ('name = "a"\n[jobs]\nmachin = "x"\n' + strong, r"machin of \[jobs\]: there is no such key.*did you mean 'machine'"),
                ('name = "a"\n' + strong + "repeat = 2\n", r"repeat of \[\[strong\]\] 's': there is no such key.*'repeats'"),
                ('name = "a"\n' + strong + "repeats = 0\n", r"repeats .*: 0 must be at least 1"),
                ('name = "a"\n' + strong + 'repeats = "2"\n', r"repeats .*: it must be a whole number"),
                ('name = "a"\n' + strong + 'grids = "auto"\n', r"grids .*: it must be a list"),
                ('name = "a"\n' + strong + 'grids = ["2x2"]\n', r"'2x2' is no grid; write auto"),
                ('name = "a"\n' + strong + 'grids = ["1x2x2x"]\n', r"'1x2x2x' is no grid; write auto"),
                ('name = "a"\n' + strong + 'grids = ["1x3x1x1"]\n', r"none of 1x3x1x1 is a grid of 2 ranks"),
                ('name = "a"\n' + strong + 'rows_option = "--gather all"\n', r"rows_option of .*: there is no such key.*'rows_options'"),
                ('name = "a"\n' + strong + 'rows_options = ["--gather"]\n', r"rows_options .*: it must be text"),
                ('name = "a"\n' + strong + 'schedules = ["row"]\n', r"'row' is none of auto, pmm3d, rows.*did you mean 'rows'"),
                ('name = "a"\n' + strong + 'grids = ["auto", "auto"]\n', r"lists \S+ twice"),
                ('name = "a"\n' + strong.replace('"karate"', ", ".join(f'"{i}.h5"' for i in range(200))) + "repeats = 1000\n",
                 r"lists and repeats of 's' make \d+ points; 100000 are the most"),
                ('name = "a"\n' + strong + strong, r"two experiments are called 's'"),
                ('name = "a"\n[[strong]]\nname = "s"\nranks = [1]\n', r"graphs .*: name stores"),
                ('name = "a"\n[[strong]]\nname = "s"\ncommand = "train-lm"\nranks = [1]\n', r"tokens .*: train-lm needs a token file"),
                ('name = "a"\n[[weak]]\nname = "s"\ngenerate = "rmat"\nranks = [1]\n', r"needs vertices_per_rank and edges_per_rank"),
                ('name = "a"\n[[weak]]\nname = "s"\ngenerate = "ring"\nranks = [1]\n', r"'ring' is none of rmat, sbm")):
            write(at("a.toml"), text)
            expect_mistake(1, ["study", "status", at("a.toml")], pattern)
        write(at("a.toml"), 'name = "a"\n' + strong)
        expect_mistake(1, ["study", "status", at("b.toml")], r"cannot read the study file '.*b\.toml': No such file")
        expect_mistake(1, ["study", "status"], r"name the study file")
        expect_mistake(2, ["study", "status", at("a.toml")], r"run it as one process")
        expect_mistake(1, ["study", "report", at("a.toml")], r"there are no results .*`orthant study collect` writes them")
        expect_mistake(1, ["study", "init", "-o", at("a.toml")], r"a\.toml")
        expect_mistake(1, ["study", "init", "-o", at("c.toml"), "--machine", "perlmuter"], r"did you mean 'perlmutter'")
        expect_mistake(1, ["study", "init"], r"name the file to write with -o study\.toml")
        write(at("r.jsonl"), '{"key":"a"}\n')
        expect_mistake(1, ["study", "report", at("a.toml"), "--results", at("r.jsonl")], r"line 1 of '.*r\.jsonl' is not the result of a point")
        os.mkdir(at("bin"))
        write(at("bin", "sbatch"), "#!/bin/sh\necho 'sbatch: error: Invalid account' >&2\nexit 1\n")
        os.chmod(at("bin", "sbatch"), 0o755)
        path = {"PATH": at("bin") + ":" + os.environ["PATH"]}
        done = run(1, ["study", "submit", at("a.toml")], **path)
        check(done.returncode == 2 and "sbatch failed with status 1: sbatch: error: Invalid account" in done.stderr, f"{done.returncode}: {done.stderr}")
        check("1 points: 1 to do" in study("status", at("a.toml"), **path), "a point counts as submitted that was refused")
        if shutil.which("flux") is None:
            expect_refusal(at("a.toml"), "there is no `flux` on this machine")
        done = run(1, ["study", "submit", at("a.toml"), "--machine", "here"])
        check(done.returncode == 2 and "there is no template of batch jobs 'here'" in done.stderr, f"{done.returncode}: {done.stderr}")
        for machine in ("generic", "perlmutter", "frontier", "alps", "tuolumne"):
            study("init", "-o", at(machine + ".toml"), "--machine", machine)
            check(f'machine = "{machine}"' in read(at(machine + ".toml")), f"init writes another machine than {machine}")
            check(" to do" in study("status", at(machine + ".toml")), "what init writes is no study")


if __name__ == "__main__":
    sys.exit(attempt_all([(1, (from_file_to_page,)), (1, (language_models,)), (1, (figures_of_the_documentation,)),
                          (1, (under_flux,)), (1, (numbers_given_twice,)), (1, (mistakes,))]))
