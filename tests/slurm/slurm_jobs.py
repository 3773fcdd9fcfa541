#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""orthant under a real Slurm, started for the test: slurm_jobs.py PROGRAM SCRIPTS PART

PROGRAM is orthant, SCRIPTS the folder scripts/slurm. Skips (77), saying so, if Slurm is not installed.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from private_slurm import PrivateSlurm, missing_programs

TRAIN = ["train", "--dataset", "sbm:vertices=403,edges=2900,features=23,classes=5", "--layers", "3", "--hidden", "16",
         "--compute-dtype", "fp64", "--schedule", "rows"]
# What a private Slurm of plain processors cannot give.
HARDWARE = re.compile(r"^#SBATCH --(account|constraint|qos|partition|gpus-per-node|gpus-per-task|gpu-bind)=.*\n", re.M)


def check(is_true, what):
    if not is_true:
        sys.exit(f"FAILED: {what}")


def losses(path):
    """Loss by epoch of a metrics file; an epoch that is there twice is an error."""
    found = {}
    for line in pathlib.Path(path).read_text().splitlines():
        event = json.loads(line)
        if event["event"] != "epoch":
            continue
        check(event["epoch"] not in found, f"epoch {event['epoch']} is in {path} twice")
        found[event["epoch"]] = event["loss"]
    return found


def mpirun(*arguments):
    done = subprocess.run([*os.environ["ORTHANT_MPIRUN"].split(), *map(str, arguments)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    check(done.returncode == 0, f"mpirun: {done.stdout}")


def part_trains(program, _, folder):
    """srun on one and two nodes gives the losses of mpirun."""
    mpirun(4, program, *TRAIN, "--grid", "1x2x1x2", "--epochs", "5", "--metrics", folder / "mpirun.jsonl")
    expected = losses(folder / "mpirun.jsonl")
    check(len(expected) == 5, "mpirun trained five epochs")
    with PrivateSlurm(num_nodes=2) as slurm:
        for nodes in (1, 2):
            metrics = folder / f"srun-{nodes}.jsonl"
            done = slurm.run(["srun", "-n", "4", "-N", nodes, program, *TRAIN, "--grid", "1x2x1x2", "--epochs", "5",
                              "--metrics", metrics])
            check(done.returncode == 0, f"srun on {nodes} nodes: {done.stdout}")
            found = losses(metrics)
            if nodes == 1:
                check(found == expected, "losses on a node are those of mpirun, to the bit")
            # Within a node, four numbers are added in the order of the ranks; between nodes, in that of MPI.
            check(found.keys() == expected.keys() and all(abs(found[epoch] / expected[epoch] - 1) < 1e-6 for epoch in expected),
                  f"losses on {nodes} nodes are those of mpirun: {found}, {expected}")
        done = slurm.run(["srun", "-n", "2", "--mpi=none", program, *TRAIN, "--epochs", "1"])
        check(done.returncode != 0 and "epoch 1" not in done.stdout,
              f"srun without its plug-in for MPI starts no two trainings side by side: {done.stdout}")
    print("4 ranks on 1 and 2 nodes: losses of 5 epochs are mpirun's")


def part_scripts(_, scripts, folder):
    """The batch scripts are accepted by sbatch; what asks for hardware is taken out for that."""
    names = sorted(scripts.glob("*.sh"))
    check(len(names) >= 4, f"there are scripts in {scripts}")
    for script in names:
        check(subprocess.run(["bash", "-n", script], check=False).returncode == 0, f"bash -n {script}")
    with PrivateSlurm(num_nodes=2) as slurm:
        for script in names:
            text = script.read_text()
            if "#SBATCH" not in text:
                print(f"{script.name}: no script of Slurm")
                continue
            plain = folder / script.name
            plain.write_text(HARDWARE.sub("", text))
            done = slurm.run(["sbatch", "--test-only", "--nodes", "2", "--cpus-per-task", "1", plain, "--epochs", "1"])
            check(done.returncode == 0, f"sbatch --test-only {script.name}: {done.stdout}")
            print(f"{script.name}: accepted without {len(HARDWARE.findall(text))} lines that ask for hardware")


REQUEUED = TRAIN + ["--grid", "1x2x1x2", "--epochs", "3000", "--eval-every", "500"]


def last_event(metrics):
    """Of the whole lines: the one behind them may still be being written."""
    lines = pathlib.Path(metrics).read_text().split("\n")[:-1] if pathlib.Path(metrics).exists() else []
    return json.loads(lines[-1]) if lines else {}


def expect_whole(metrics, expected, what):
    found = losses(metrics)
    check(sorted(found) == list(range(1, len(found) + 1)), f"{what}: no epoch is missing")
    check(found == expected, f"{what}: the losses are those of a run that was never stopped")


def whole_run(program, folder):
    mpirun(4, program, *REQUEUED, "--metrics", folder / "whole.jsonl")
    return losses(folder / "whole.jsonl")


def part_array(program, scripts, folder):
    """The tasks of an array job train side by side, each in a folder of its own."""
    script = folder / "array.sh"
    script.write_text("#!/usr/bin/env bash\n"
                      f"cd {folder} && mkdir -p $SLURM_ARRAY_TASK_ID && cd $SLURM_ARRAY_TASK_ID && "
                      f"srun {program} {' '.join(TRAIN)} --epochs 4 --seed $SLURM_ARRAY_TASK_ID --metrics run.jsonl\n")
    with PrivateSlurm(num_nodes=2) as slurm:
        job = slurm.submit("--array=1-3", "-n", "2", "--output", folder / "array-%a.log", script)
        slurm.wait_for(lambda: all(last_event(folder / str(task) / "run.jsonl").get("event") == "done"
                                   for task in (1, 2, 3)), f"tasks of the array {job}", 120)
    check(len({losses(folder / str(task) / "run.jsonl")[4] for task in (1, 2, 3)}) == 3, "three seeds, three losses")
    print("an array of 3 tasks trained on 2 ranks each")


def started(slurm, program, scripts, folder, epoch, *options):
    """The batch script for any cluster is submitted and has trained to that epoch. Returns the job and its metrics."""
    script, metrics = folder / "generic.sh", folder / "run.jsonl"
    script.write_text(HARDWARE.sub("", (scripts / "generic.sh").read_text()))
    slurm.environment.update(ORTHANT=program, ORTHANT_CHECKPOINTS=str(folder / "checkpoints"))
    job = slurm.submit("--nodes", "1", "--chdir", folder, "--output", folder / "job.log", script, *REQUEUED[1:],
                       "--metrics", metrics, *options)
    slurm.wait_for(lambda: last_event(metrics).get("epoch", 0) >= epoch, f"epoch {epoch}", 120)
    return job, metrics


def wait_for_second_run(slurm, job, metrics):
    slurm.wait_for(lambda: slurm.job(job).get("Restarts") == "1", "the job is back in the queue", 60)
    # A requeued job waits two minutes, unless it is told to start earlier. Not at once: a node refuses a start whose
    # credential dates from the second in which the first run was ended, and Slurm then gives the job up.
    slurm.run(["scontrol", "update", f"JobId={job}", "StartTime=now+5"])
    slurm.wait_for(lambda: last_event(metrics).get("event") == "done", "the job has come to its end", 240)


def part_requeue(program, scripts, folder):
    """USR1 -> status 75 -> requeue -> the job goes on at the right step."""
    expected = whole_run(program, folder)
    with PrivateSlurm(num_nodes=1) as slurm:
        job, metrics = started(slurm, program, scripts, folder, 20)
        slurm.run(["scancel", "--signal=USR1", job])
        slurm.wait_for(lambda: last_event(metrics).get("event") == "stopped", "the job stops", 60)
        stopped = last_event(metrics)
        wait_for_second_run(slurm, job, metrics)
    expect_whole(metrics, expected, "after a requeue")
    runs = [event for event in map(json.loads, metrics.read_text().splitlines()) if event["event"] == "run"]
    check(runs[-1].get("resumed", {}).get("epoch") == stopped["epoch"], "it goes on where it was stopped")
    print(f"stopped before epoch {stopped['epoch']} of {len(expected)}, requeued, and went on there; no epoch missing")


def part_node_down(program, scripts, folder):
    """A node fails: Slurm puts the job back into the queue, and it goes on on the other one."""
    expected = whole_run(program, folder)
    with PrivateSlurm(num_nodes=2) as slurm:
        job, metrics = started(slurm, program, scripts, folder, 200, "--checkpoint-every", "50")
        node = slurm.job(job)["NodeList"]
        slurm.fail_node(node)
        wait_for_second_run(slurm, job, metrics)
        check(slurm.job(job)["NodeList"] != node, "it went on on the other node")
    expect_whole(metrics, expected, "after a node failed")
    print(f"{node} went down; the job went on on the other node; no epoch missing")


def main():
    program, scripts, part = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    if missing := missing_programs():
        print(f"skipped: Slurm is not installed (no {', '.join(missing)}); scripts/bootstrap.sh --slurm installs it")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        globals()[f"part_{part}"](program, scripts, pathlib.Path(folder))


if __name__ == "__main__":
    main()
