#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Points of a study on this machine: points_here.py PROGRAM [memory]

What is predicted of generated graphs, points on more ranks than cores, and why points failed.
"""

import json
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from program import MPIRUN, attempt_all, expect_mistake  # noqa: E402
from study_runs import check, expect_exact_bytes, lines_of, read, study, write  # noqa: E402

GENERATED = """
name = "generated"
[jobs]
predict = "host"
[[strong]]
name = "counted"
graphs = ["rmat:vertices=20000,edges=100000,features=64,classes=16"]
ranks = [1, 2]
schedules = ["pmm3d", "rows"]
options = "--epochs 3 --eval-every 0 --hidden 64 --residual"
[[strong]]
name = "pruned"
graphs = ["rmat:vertices=2000,edges=8000,features=8,classes=4,train=0.02"]
ranks = [2]
schedules = ["rows"]
options = "--epochs 3 --eval-every 0 --hidden 8 --prune on"
"""


def generated_graphs(_):
    """Rows that move are counted in the graph, and its store in the memory of each rank is predicted, too; what is pruned is less."""
    with tempfile.TemporaryDirectory() as folder:
        at = lambda *names: os.path.join(folder, *names)
        write(at("g.toml"), GENERATED)
        study("submit", at("g.toml"), "--here")
        study("collect", at("g.toml"))
        *counted, pruned = lines_of(at("generated.study", "results.jsonl"))
        check(len(counted) == 4, f"{len(counted)} points")
        for line in counted:
            expect_exact_bytes(line)
            ratio = line["predicted"]["memory_bytes"] / line["memory_bytes"]
            check("memory" not in sys.argv[2:] or 0.9 < ratio < 1.1, f"{line['key']}: predicts {ratio:.2f} of its memory, {line['memory_bytes']} bytes")
        log = read(at("generated.study", "logs", next(line["key"] for line in counted if line["schedule"] == "rows" and line["ranks"] == 2) + ".log"))
        check("gather    needed rows" in log, f"no rows are left out, so nothing was shown: {log}")
        check(pruned["pruned"] and pruned["predicted"]["sent_bytes_are"] == "at most", f"pruned: {pruned}")
        check(0 < pruned["sent_bytes"] < pruned["predicted"]["sent_bytes"], f"pruned: {pruned}")
        table = study("report", at("g.toml"))
        check(re.search(r"^curve +ranks +grid +MB sent +predicted exactly +measured is +MB memory +predicted about +measured is$", table, re.M), table)
        check(re.search(r"^curve .* predicted at most +measured is +MB memory", table, re.M), table)
        check("predicted at most: training leaves out rows (--prune)" in table, table)
        expect_columns_apart(at, table)


def expect_columns_apart(at, table):
    """What is exact and what is not have columns of their own, also within an experiment; results of older versions are none of both."""
    lines = lines_of(at("generated.study", "results.jsonl"))[:4]
    lines[1]["predicted"] |= {"sent_bytes_are": "at most", "reason": "the graph is <large>"}
    del lines[2]["predicted"]["sent_bytes_are"]
    write(at("r.jsonl"), "".join(json.dumps(line) + "\n" for line in lines))
    table = study("report", at("g.toml"), "--results", at("r.jsonl"), "-o", at("page"))
    head = r"^curve +ranks +grid +MB sent +predicted exactly +measured is +predicted at most +measured is +predicted about +measured is +MB memory"
    check(re.search(head, table, re.M), table)
    cells = [re.split(r" {2,}", row)[3:10] for row in table[re.search(head, table, re.M).end():].splitlines()[1:5]]
    check([[cell != "-" for cell in row[1:]] for row in cells] == [[True] * 2 + [False] * 4, [False] * 2 + [True] * 2 + [False] * 2,
                                                                  [False] * 4 + [True] * 2, [True] * 2 + [False] * 4], f"cells {cells}")
    check("predicted at most: the graph is <large>" in table, table)
    check("<p class=\"note\">predicted at most: the graph is &lt;large&gt;</p>" in read(at("page", "report.html")), "no note on the page")
    lines[0]["predicted"]["sent_bytes_are"] = "nearly"
    write(at("r.jsonl"), json.dumps(lines[0]) + "\n")
    expect_mistake(1, ["study", "report", at("g.toml"), "--results", at("r.jsonl")], r"line 1 of '.*r\.jsonl' is not the result of a point")


def more_ranks_than_cores(_):
    """They run under the launcher as it is, and are marked: in what is said, in the results, in tables, in the figure and on the page."""
    with tempfile.TemporaryDirectory() as folder:
        at = lambda *names: os.path.join(folder, *names)
        write(at("c.toml"), 'name = "c"\n[[strong]]\nname = "s"\ngraphs = ["karate"]\nranks = [1, 2]\ngrids = ["1xPx1x1"]\n'
                            'options = "--epochs 3 --eval-every 0"\n')
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(cores)})  # of this thread, and of what it starts
        try:
            said = study("submit", at("c.toml"), "--here", ORTHANT_MPIRUN=" ".join(word for word in MPIRUN if word != "--oversubscribe"))
        finally:
            os.sched_setaffinity(0, cores)
        check("1 of them on more ranks than the 1 core here: their seconds mean nothing" in said and "2/2 done" in said, f"says {said}")
        study("collect", at("c.toml"))
        check([line.get("oversubscribed", False) for line in lines_of(at("c.study", "results.jsonl"))] == [False, True], "marks others")
        table = study("report", at("c.toml"))
        note = "more ranks than cores: these seconds mean nothing"
        check(len(re.findall(r"^s +1  ", table, re.M)) == 3 and len(re.findall(r"^s +2\*  ", table, re.M)) == 2, f"marks others: {table}")
        check(table.count("* " + note + "\n") == 2 and f"2 ranks: {note}" in read(at("c.study", "report", "s.svg")), f"no note: {table}")
        check(read(at("c.study", "report", "report.html")).count(f"<p class=\"note\">* {note}</p>") == 2, "no note on the page")


RULE = "-" * 74 + "\n"
SLOTS = RULE + """There are not enough slots available in the system to satisfy the 4
slots that were requested by the application:

  orthant

A "slot" is the Open MPI term for an allocatable unit where we can
launch a process.
""" + RULE
AFTERMATH = RULE + "Primary job  terminated normally, but 1 process returned\na non-zero exit code. Per user-direction, the job has been aborted.\n" + RULE


def reasons(_):
    """The first line that explains a failure, whoever wrote it."""
    killed = "mpirun noticed that process rank 1 with PID 0 on node a exited on signal 9 (Killed)."
    warning = RULE + "WARNING: There was an error initializing an OpenFabrics device.\n\n  Local host: n1\n" + RULE
    too_long = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-27T01:00:00 DUE TO TIME LIMIT ***"
    cases = (
        (warning + "epoch 1\nsrun: Job step aborted: Waiting up to 32 seconds\n" + too_long + "\n", too_long),
        (warning + "epoch 1\n" + AFTERMATH + RULE + killed + "\n" + RULE, killed),
        (RULE + "By default, infiniband ports are not used.\n" + RULE + too_long + "\n", too_long),
        (warning + "epoch 1\n", "epoch 1"),
        (warning, "WARNING: There was an error initializing an OpenFabrics device."),
        ("srun: error: n1: task 0: Exited with exit code 1\n" + RULE + killed + "\n" + RULE, killed),
        (SLOTS, "There are not enough slots available in the system to satisfy the 4 slots that were requested by the application:"),
        (RULE + "mpirun has detected an attempt to run as root.\n\nRunning as root is *strongly* discouraged\n" + RULE,
         "mpirun has detected an attempt to run as root."),
        ("graph     10 vertices\n" + AFTERMATH + RULE + killed + "\n" + RULE, killed),
        (AFTERMATH + "orthant: error: no such file\n" + AFTERMATH, "orthant: error: no such file"),
        ("points/a.sh: line 9: mpirun: command not found\n", "points/a.sh: line 9: mpirun: command not found"),
        ("srun: error: Unable to create step for job 7: More processors requested than permitted\nsrun: launching ended\n",
         "srun: error: Unable to create step for job 7: More processors requested than permitted"),
        ("srun: Job step aborted: Waiting up to 32 seconds\nslurmstepd: error: Detected 1 oom_kill event in StepId=7.0.\n"
         "srun: error: n1: task 0: Out Of Memory\n", "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0."),
        ("[mpiexec@n1] match_arg: unrecognized argument x\n[mpiexec@n1] Usage: ./mpiexec\n", "[mpiexec@n1] match_arg: unrecognized argument x"),
        ('mpirun: Error: unknown option "--badopt"\nType \'mpirun --help\' for usage.\n', 'mpirun: Error: unknown option "--badopt"'),
        ("epoch 1\nfree(): invalid pointer\n\n", "free(): invalid pointer"),
        ("epoch 1\nfree(): invalid pointer\n" + AFTERMATH, "Primary job  terminated normally, but 1 process returned a non-zero exit code. "
         "Per user-direction, the job has been aborted. It printed last: free(): invalid pointer"))
    with tempfile.TemporaryDirectory() as folder:
        at = lambda *names: os.path.join(folder, *names)
        write(at("r.toml"), f'name = "r"\n[[strong]]\nname = "s"\ngraphs = ["karate"]\nranks = [1]\nrepeats = {len(cases)}\n')
        check(f"{len(cases)} to do" in study("status", at("r.toml")), "is no study")
        study("submit", at("r.toml"), "--here", "--launcher", at("nothing"), status=1)
        check(f"status 127: {at('r.study', 'points')}" in study("status", at("r.toml")), "does not say that there is no launcher")
        for name in os.listdir(at("r.study", "failures")):
            log, _ = cases[int(name.split("-")[-2]) - 1]
            write(at("r.study", "logs", name + ".log"), log)
        found = re.findall(r"^failed  s-\S+-p1-(\d+)-\w+: status 127: (.*)$", study("status", at("r.toml")), re.M)
        check([reason for _, reason in found] == [reason for _, reason in cases], f"reasons {found}")


if __name__ == "__main__":
    sys.exit(attempt_all([(1, (generated_graphs,)), (1, (more_ranks_than_cores,)), (1, (reasons,))]))
