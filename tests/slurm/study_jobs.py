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
ranks = [1, 2, 4]
options = "--epochs 5 --eval-every 0 --hidden 16"
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


def check(condition, what):
    if not condition:
        sys.exit(f"FAIL: {what}")


class Study:
    def __init__(self, program, folder, slurm):
        self.program, self.folder, self.slurm = program, folder, slurm
        self.file = folder / "twelve.toml"

    def __call__(self, command, *options, status=0):
        file = ["-o", self.file] if command == "init" else [self.file]
        done = subprocess.run([self.program, "study", command, *file, *options], env=self.slurm.environment, cwd=self.folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False)
        check(done.returncode == status, f"study {command}: status {done.returncode}: {done.stdout}")
        return done.stdout

    def is_idle(self):
        return not re.search(r"running|waiting", self("status"))

    def results(self):
        return {path.name: path.stat().st_mtime_ns for path in (self.folder / "twelve.study" / "results").glob("*.jsonl")}


def test(program, folder, slurm):
    study = Study(program, folder, slurm)
    study("init")
    text = study.file.read_text()
    text = text[:text.index("# One problem on growing")].replace("ranks_per_node = 4", "ranks_per_node = 2") + EXPERIMENTS
    study.file.write_text(text)
    partition = [program, "partition", "--generate", "sbm", "--vertices", "500", "--edges", "4000", "--features", "8", "--classes", "3", "-o"]
    late = folder / "late.h5"
    subprocess.run([*partition, late], check=True, stdout=subprocess.DEVNULL)
    points = folder / "twelve.study" / "points"
    said = study("submit")
    check("12 points: 12 to do, 12 to start" in said and len(re.findall(r"^job ", said, re.M)) == 2, f"two arrays: {said}")
    check(len(list(points.iterdir())) == 12, "twelve scripts")

    slurm.wait_for(lambda: len(study.results()) >= 1, "the first result", 180)
    slurm.restart_controller()
    slurm.wait_for(study.is_idle, "no job is left", 300)
    while "0 to start" not in study("submit"):  # what the controller has forgotten
        slurm.wait_for(study.is_idle, "no job is left", 300)
    check("12 points: 12 done" in study("status"), f"goes on after the controller was killed: {study('status')}")

    # One point fails: its result is taken away, and its graph.
    failing = next(path for path in (folder / "twelve.study" / "results").iterdir() if re.match("late-.*-p2-", path.name))
    failing.unlink()
    late.rename(folder / "away.h5")
    check("12 points: 11 done, 1 to do, 1 to start" in study("submit"), "starts what is missing")
    slurm.wait_for(study.is_idle, "no job is left", 120)
    status = study("status")
    check("12 points: 11 done, 1 failed" in status and re.search(r"failed  late-\S+-p2-\S+: status 2: orthant: error: .*late\.h5", status),
          f"names the failure: {status}")
    (folder / "away.h5").rename(late)
    before = study.results()
    check("11 done, 1 failed, 1 to start" in study("submit"), "starts only what failed")
    slurm.wait_for(study.is_idle, "no job is left", 120)
    after = study.results()
    check(len(after) == 12 and all(after[name] == time for name, time in before.items()), "only that point was done again")

    study("collect")
    keys = [json.loads(line)["key"] for line in (folder / "twelve.study" / "results.jsonl").read_text().splitlines()]
    check(len(keys) == len(set(keys)) == 12, "every point is counted once")
    print(study("report"))
    check((folder / "twelve.study" / "report" / "report.html").stat().st_size > 10_000, "the page is there")
    print("twelve points; the controller was killed and came back; one failure, done again alone")


def main():
    if missing := missing_programs():
        print(f"skipped: Slurm is not installed (no {', '.join(missing)}); scripts/bootstrap.sh --slurm installs it")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as scratch, PrivateSlurm(num_nodes=2) as slurm:
        folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else scratch)
        test(os.path.abspath(sys.argv[1]), folder, slurm)


if __name__ == "__main__":
    main()
