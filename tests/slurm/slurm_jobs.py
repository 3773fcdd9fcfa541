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
         "--seed", "3", "--compute-dtype", "fp64", "--schedule", "rows"]
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
            check(losses(metrics) == expected, f"losses on {nodes} nodes are those of mpirun")
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


def main():
    program, scripts, part = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    if missing := missing_programs():
        print(f"skipped: Slurm is not installed (no {', '.join(missing)}); scripts/bootstrap.sh --slurm installs it")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        globals()[f"part_{part}"](program, scripts, pathlib.Path(folder))


if __name__ == "__main__":
    main()
