#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A study of twelve points under a private Slurm, from `init` to the page: study_jobs.py PROGRAM [FOLDER]

The controller is killed and started again in the middle, and one point fails: the study goes on, names the failure, and does only
that one again. FOLDER keeps the study.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

from private_slurm import PrivateSlurm, missing_programs

EXPERIMENTS = """
[[strong]]
name = "graph"
graphs = ["rmat:vertices=3000,edges=30000,features=16,classes=5"]
ranks = [1, 2, 4]
schedules = ["pmm3d", "rows"]
options = "--epochs 12 --eval-every 0 --hidden 32"
[[strong]]
name = "late"
graphs = ["late.h5"]
ranks = [2]
options = "--epochs 5 --eval-every 0 --hidden 16"
[[strong]]
name = "words"
command = "train-lm"
tokens = "t.h5"
ranks = [1, 2]
grids = ["1xPx1x1"]
options = "--layers 1 --hidden 8 --heads 2 --sequence 8 --steps 4 --eval-every 0 --warmup-steps 1"
[[weak]]
name = "growing"
generate = "rmat"
vertices_per_rank = 1000
edges_per_rank = 10000
features = 16
classes = 5
ranks = [1, 2, 4]
schedules = ["rows"]
options = "--epochs 5 --eval-every 0 --hidden 16"
"""


def check(is_true, what):
    if not is_true:
        sys.exit(f"FAILED: {what}")


class Study:
    """The commands of one study file."""

    def __init__(self, program, folder, slurm):
        self.program, self.home, self.slurm = program, folder, slurm
        self.file, self.folder = folder / "twelve.toml", folder / "twelve.study"

    def run(self, *words):
        done = subprocess.run([self.program, *map(str, words)], env=self.slurm.environment, cwd=self.home, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False)
        check(done.returncode == 0, f"{words}: status {done.returncode}: {done.stdout}")
        return done.stdout

    def __call__(self, command):
        return self.run("study", command, *(["-o"] if command == "init" else []), self.file)

    def write(self):
        """`init`, and then as a user edits the file: two ranks per node, and experiments of their own."""
        self("init")
        text = self.file.read_text()
        text = text[:text.index("# One problem on growing")].replace("ranks_per_node = 4", "ranks_per_node = 2")
        self.file.write_text(text + EXPERIMENTS)
        (self.home / "text.txt").write_text("to be or not to be " * 40)
        self.run("tokenize", "--input", "text.txt", "-o", "t.h5")

    def is_idle(self):
        self.slurm.resume_nodes()
        return not re.search(r"running|waiting", self("status"))

    def wait(self):
        self.slurm.wait_for(self.is_idle, "no job is left", 180)

    def results(self):
        """When each was written, by file."""
        return {path.name: path.stat().st_mtime_ns for path in (self.folder / "results").glob("*.jsonl")}


def submit_and_lose_the_controller(study):
    study.write()
    said = study("submit")
    check("12 points: 12 to do, 12 to start" in said and len(re.findall(r"^job ", said, re.M)) == 2, f"two arrays: {said}")
    study.slurm.wait_for(study.results, "the first result", 120)
    study.slurm.restart_controller()
    early = study.results()
    check(1 <= len(early) < 11, f"{len(early)} points were done when the controller came back: not in the middle")
    for _ in range(5):
        study.wait()
        if "12 points: 11 done, 1 failed" in (status := study("status")):
            break
        print(study("submit"))  # what the controller has forgotten, or could not start
    check("12 points: 11 done, 1 failed\n" in status, f"goes on after the controller was killed: {status}")
    check(re.search(r"failed  late-\S+-p2-\S+: status 2: orthant: error: .*late\.h5", status), f"names the failure: {status}")
    after = study.results()
    check(all(after[name] == time for name, time in early.items()), "no point is done again that was done")
    return len(early)


def mend_the_failure(study):
    study.run("partition", "--generate", "sbm", "--vertices", 500, "--edges", 4000, "--features", 8, "--classes", 3, "-o", "late.h5")
    before = study.results()
    check("11 done, 1 failed, 1 to start" in study("submit"), "starts only what failed")
    study.wait()
    check("12 points: 12 done" in study("status"), "the failed point is done")
    after = study.results()
    check(len(after) == 12 and all(after[name] == time for name, time in before.items()), "only that point was done again")
    check("12 done, 0 to start" in study("submit"), "nothing is left to do")


def report(study):
    study("collect")
    keys = [json.loads(line)["key"] for line in (study.folder / "results.jsonl").read_text().splitlines()]
    check(len(keys) == len(set(keys)) == 12, "every point is counted once")
    table = study("report")
    for experiment, num_rows in (("graph", 6), ("late", 1), ("words", 2), ("growing", 3)):
        rows = re.search(rf"^{experiment} \(\w+ scaling\): milliseconds per \w+\n.*\n((?:.+\n)+)", table, re.M)
        lines = [line for line in rows[1].splitlines() if not line.startswith("*")] if rows else []  # "* more ranks than cores"
        check(len(lines) == num_rows, f"{num_rows} rows of {experiment}: {table}")
        check(ElementTree.parse(study.folder / "report" / f"{experiment}.svg").getroot().tag.endswith("svg"), f"{experiment}.svg")
    page = (study.folder / "report" / "report.html").read_text()
    check(page.count("<svg") == 4 and "12 points, 12 measured" in page, "the page has all figures")
    print(table)


def main():
    if missing := missing_programs():
        print(f"skipped: Slurm is not installed (no {', '.join(missing)}); scripts/bootstrap.sh --slurm installs it")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as scratch, PrivateSlurm(num_nodes=2, cpus=2) as slurm:  # one point per node at a time
        study = Study(os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else scratch), slurm)
        num_early = submit_and_lose_the_controller(study)
        mend_the_failure(study)
        report(study)
    print(f"twelve points; the controller was killed after {num_early} and came back; one failed, and was done again alone")


if __name__ == "__main__":
    main()
