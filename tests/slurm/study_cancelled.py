#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A user cancels the jobs of a study: study_cancelled.py PROGRAM

Of four points one is done, one runs and two wait when `scancel` comes. `status` tells the three as lost, the one that ran in Slurm's words;
`submit` starts these three alone.
"""

import getpass
import os
import pathlib
import re
import sys
import tempfile

from private_slurm import PrivateSlurm, missing_programs
from study_jobs import Study, check

POINT = """
[[strong]]
name = "{name}"
graphs = ["rmat:vertices=3000,edges=30000,features=16,classes=5"]
ranks = {ranks}
schedules = ["rows"]
options = "--eval-every 0 --hidden 32 --epochs {epochs}"
"""


class FourPoints(Study):
    def write(self):
        self("init")
        text = self.file.read_text()
        text = text[:text.index("# One problem on growing")].replace("ranks_per_node = 4", "ranks_per_node = 2")
        self.file.write_text(text + POINT.format(name="short", ranks="[1]", epochs=3)
                             + POINT.format(name="long", ranks="[1, 2]", epochs=1_000_000) + POINT.format(name="last", ranks="[2]", epochs=3))


def has_begun(study):
    return "4 points: 1 done, 1 running, 2 waiting\n" in study("status")


def cancel(study):
    study.write()
    check("4 points: 4 to do, 4 to start" in study("submit"), "starts all")
    study.slurm.wait_for(lambda: has_begun(study), "one point is done and one runs", 120)
    study.slurm.run(["scancel", "--user", getpass.getuser()])
    study.wait()
    status = study("status")
    check("4 points: 1 done, 3 lost\n" in status, f"three are lost: {status}")
    check(re.search(r"^lost +long-\S+-p1-\S+: its job \d+ ended without a result: .* CANCELLED AT ", status, re.M), f"in Slurm's words: {status}")
    check(len(re.findall(r"^lost .* ended without a result$", status, re.M)) == 2, f"the others had not begun: {status}")


def start_again(study):
    before = study.results()
    check("1 done, 3 lost, 3 to start" in study("submit"), "starts what was lost")
    study.slurm.wait_for(lambda: has_begun(study), "the point that was cancelled runs again", 120)
    check(study.results() == before and len(before) == 1, "the point that was done is not done again")


def main():
    if missing := missing_programs():
        print(f"skipped: Slurm is not installed (no {', '.join(missing)}); scripts/bootstrap.sh --slurm installs it")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as scratch, PrivateSlurm(num_nodes=1, cpus=2) as slurm:
        study = FourPoints(os.path.abspath(sys.argv[1]), pathlib.Path(scratch), slurm)
        cancel(study)
        start_again(study)
    print("of four points one was done, one was cancelled as it ran and two as they waited; the three were started again")


if __name__ == "__main__":
    main()
