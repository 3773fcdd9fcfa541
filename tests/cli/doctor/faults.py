#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""orthant doctor: faults are provoked where this machine can have them, and found with their fixes: faults.py PROGRAM"""

import os
import re
import subprocess
import sys
import tempfile

# The machine's own settings of its libraries are right or wrong, and no matter of these tests: each provokes its own fault.
for setting in ("OPENBLAS_CORETYPE", "NCCL_TOPO_FILE"):
    os.environ.pop(setting, None)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from program import MPIRUN, PROGRAM, Failure, attempt_all, expect_mistake, run

MACHINE = """name = "made-up"
ranks_per_node = 8
[memory]
bytes_per_second = 1e10
source = "none"
[dense_products]
fp32 = 1e11
of_16_bits = 1e11
source = "none"
[sparse_products]
per_nonzero = [[1, 1e-9], [128, 1e-8]]
source = "none"
[launch]
seconds = 0
source = "none"
[collectives]
call_seconds = 0
step_seconds = 0
inside = [[1, 2, {speed}], [2, 2, {far_speed}]]
bytes_per_second_between_nodes = {speed}
source = "none"
"""


def check(condition, what):
    if not condition:
        raise Failure(what)


def findings(done):
    """{check: [(what, fix)]} of those that are wrong."""
    found, name, what = {}, None, None
    for line in done.stdout.splitlines():
        if head := re.match(r"(ok|wrong) +(GPU-aware MPI|fabric files|huge pages|\S+) +(.*)", line):
            name = head[2]
            if head[1] == "wrong":
                found[name] = []
        elif line.startswith(" " * 21 + "fix: "):
            found[name].append((what, line.strip().removeprefix("fix: ")))
        elif line.startswith(" " * 21):
            what = line.strip()
    check(done.returncode == (1 if found else 0), f"status {done.returncode}: {done.stdout}{done.stderr}")
    check(("nothing is wrong" in done.stdout) == (not found) or not done.stdout, f"says {done.stdout}")
    return found


def expect_finding(done, name, what, fix):
    found = findings(done)
    check(any(re.search(what, one[0]) and re.search(fix, one[1]) for one in found.get(name, [])),
          f"{name} lacks /{what}/ with the fix /{fix}/: {done.stdout}{done.stderr}")
    return found


def truths():
    """Checks that may be wrong on this machine, by what the system says."""
    with open("/sys/kernel/mm/transparent_hugepage/enabled", encoding="utf-8") as file:
        return {"huge pages"} if "[never]" in file.read() else set()


def healthy(_):
    with tempfile.TemporaryDirectory() as folder:
        done = run(1, ["doctor", "--checkpoint", os.path.join(folder, "a", "b")])
        check(set(findings(done)) <= truths(), f"finds what is not so: {done.stdout}")
        check(not os.listdir(folder), "leaves files behind")


def old_blas_core(_):
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        if not re.search(r"^flags.*\bavx2\b", file.read(), re.M):
            return
    if "OpenBLAS" not in run(1, ["--version"]).stdout:
        return
    found = expect_finding(run(1, ["doctor"], OPENBLAS_CORETYPE="Nehalem"), "BLAS", r"kernels of Nehalem use SSE, and the processor has AVX",
                           r"unset OPENBLAS_CORETYPE, which is Nehalem")
    check(set(found) <= truths() | {"BLAS"}, f"finds {found}")


def too_many_ranks(_):
    cores = len(os.sched_getaffinity(0))
    if cores > 6:
        return
    found = expect_finding(run(cores + 1, ["doctor"], OMP_NUM_THREADS="1"), "cores", rf"{cores + 1} threads of {cores + 1} ranks share {cores} cores?$",
                           rf"start at most {cores} ranks? per host.*--oversubscribe")
    check(set(found) <= truths() | {"cores"}, f"finds {found}")
    if cores < 2:
        return
    # Two ranks on one core of several: they are bound badly, and the host has room.
    command = MPIRUN + ["2", "taskset", "-c", str(min(os.sched_getaffinity(0))), PROGRAM, "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"})
    expect_finding(done, "cores", r"2 threads of 2 ranks share 1 core$", r"bind each rank to cores of its own")


def single_jobs(_):
    """As a launcher leaves them whose PMI the MPI library does not speak."""
    for size, rank in (("PMI_SIZE", "PMI_RANK"), ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"), ("FLUX_JOB_SIZE", "FLUX_TASK_RANK")):
        found = expect_finding(run(1, ["doctor"], **{size: "4", rank: "0"}), "launcher", rf"started 4 processes, but to MPI each is a job of its own \({size}=4\)",
                               r"srun --mpi=pmix|launcher of the MPI library|pmi")
        check(set(found) <= truths() | {"launcher"}, f"finds {found}")
        other = run(1, ["doctor"], **{size: "4", rank: "1"})
        check(other.returncode == 1 and other.stdout == "", f"the second process says it, too: {other.stdout}")
        check(set(findings(run(1, ["doctor"], **{size: "1", rank: "0"}))) <= truths(), "one process is a job of one")
    # Really: Open MPI's mpirun starts two processes that do not hear of it.
    if "Open MPI" in run(1, ["--version"]).stdout:
        kept = " ".join(f"{name}=${name}" for name in ("PATH", "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_COMM_WORLD_SIZE",
                                                       "OMPI_COMM_WORLD_RANK"))
        done = subprocess.run(MPIRUN + ["2", "sh", "-c", f"exec env -i {kept} {PROGRAM} doctor"], capture_output=True, text=True, timeout=90, check=False)
        check(done.stdout.count("Open MPI's mpirun started 2 processes, but to MPI each is a job of its own") == 1 and done.returncode != 0,
              f"two single jobs: {done.stdout}{done.stderr}")


def with_mount(mount, *options):
    """The doctor behind a mount that nobody else sees. None if mounts are not allowed here."""
    command = " ".join([mount, "&& exec", PROGRAM, "doctor", *options])
    done = subprocess.run(["unshare", "-m", "sh", "-c", command], capture_output=True, text=True, timeout=90, check=False)
    return done if "storage" in done.stdout else None


def checkpoint_folder(_):
    with tempfile.TemporaryDirectory() as folder:
        readonly = os.path.join(folder, "readonly")
        os.mkdir(readonly)
        if os.geteuid() == 0:
            done = with_mount(f"mount -t tmpfs -o ro none {readonly}", "--checkpoint", f"{readonly}/run")
            if done is None:
                return
        else:
            os.chmod(readonly, 0o555)
            done = run(1, ["doctor", "--checkpoint", os.path.join(readonly, "run")])
        found = expect_finding(done, "storage", r"checkpoints cannot be written to '.*/readonly/run': .*(Read-only|Permission)", r"give --checkpoint a folder")
        check(set(found) <= truths() | {"storage"}, f"finds {found}")


def small_pages(_):
    """By a setting of the system that the doctor alone sees."""
    setting = "/sys/kernel/mm/transparent_hugepage/enabled"
    if os.geteuid() != 0 or not os.path.exists(setting):
        return
    with tempfile.TemporaryDirectory() as folder:
        for text, is_wrong in (("always madvise [never]", True), ("always [madvise] never", False)):
            with open(os.path.join(folder, "enabled"), "w", encoding="utf-8") as file:
                file.write(text + "\n")
            done = with_mount(f"mount --bind {folder}/enabled {setting}")
            if done is None:
                return
            check(set(findings(done)) == ({"huge pages"} if is_wrong else set()), f"{text}: {done.stdout}")
        done = with_mount(f"echo 'always madvise [never]' > {folder}/enabled && mount --bind {folder}/enabled {setting}")
        expect_finding(done, "huge pages", r"large arrays lie on small pages", r"as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled$")


def storage_targets(_):
    """By a stand-in for Lustre's `lfs`."""
    with tempfile.TemporaryDirectory() as folder:
        lfs, asked, runs = (os.path.join(folder, name) for name in ("lfs", "asked", "runs"))
        os.mkdir(runs)
        path = {"PATH": folder + ":" + os.environ["PATH"]}
        for answer, fact in (("1", "1 storage target"), ("8", "8 storage targets"), ("-1", "all storage targets"), ("", None)):
            with open(lfs, "w", encoding="utf-8") as file:
                file.write(f'#!/bin/sh\necho "$@" > {asked}\n' + (f"echo {answer}\n" if answer else "exit 22\n"))  # 22: no Lustre here
            os.chmod(lfs, 0o755)
            done = run(1, ["doctor", "--checkpoint", runs + "/next"], **path)
            with open(asked, encoding="utf-8") as file:
                check(file.read().split() == ["getstripe", "-d", "-c", runs], "asks lfs something else")
            check(("storage target" in done.stdout) == (fact is not None) and (fact or "") in done.stdout, f"{answer}: {done.stdout}")
            check(set(findings(done)) - truths() == ({"storage"} if answer == "1" else set()), f"{answer}: {done.stdout}")
            if answer == "1":
                expect_finding(done, "storage", r"new files lie on one storage target", rf"lfs setstripe -c 8 {runs}$")


def fabric_files(ranks):
    with tempfile.TemporaryDirectory() as folder:
        gone = os.path.join(folder, "topology.xml")
        expect_finding(run(ranks, ["doctor"], NCCL_TOPO_FILE=gone), "fabric files", r"NCCL_TOPO_FILE names '.*topology\.xml', which is not there",
                       r"correct it, or unset NCCL_TOPO_FILE")
        with open(gone, "w", encoding="utf-8"):
            pass
        check("fabric files" not in findings(run(ranks, ["doctor"], NCCL_TOPO_FILE=gone)), "finds a file missing that is there")
        expect_finding(run(ranks, ["doctor", "--machine", os.path.join(folder, "m.toml")]), "fabric files", r"--machine names the machine file '.*m\.toml'",
                       r"give one of .*perlmutter.*bench machine")


def axes(ranks):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.toml")
        for speed, is_wrong in (("1e15", True), ("1", False)):
            with open(path, "w", encoding="utf-8") as file:
                file.write(MACHINE.format(speed=speed, far_speed=speed))
            done = run(ranks, ["doctor", "--grid", f"1x{ranks}x1x1", "--machine", path])
            check(re.search(rf"axes +x \({ranks} ranks, stride 1\) \d+\.\d\d GB/s of ", done.stdout), f"does not measure x: {done.stdout}")
            check(("axes" in findings(done)) == is_wrong, f"{speed} B/s: {done.stdout}")
            if is_wrong:
                expect_finding(done, "axes", r"along x each rank sends .* and the machine 'made-up' has 1000000\.00", r"bench machine")
        expect_mistake(ranks, ["doctor", "--grid", "1x3x1x1"], r"1x3x1x1")


def each_axis(ranks):
    """Each is held against the links that the machine has at its own distance."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.toml")
        for grid, near, far in (("1x2x1x2", "x", "z"), ("2x1x2x1", "y", "data")):
            for speed, far_speed, slow in (("1e15", "1", near), ("1", "1e15", far)):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(MACHINE.format(speed=speed, far_speed=far_speed))
                found = expect_finding(run(ranks, ["doctor", "--grid", grid, "--machine", path]), "axes", rf"along {slow} each rank sends .* has 1000000\.00",
                                       r"see to binding and to the network first")
                check(len(found["axes"]) == 1, f"{grid}: finds {found['axes']}")


if __name__ == "__main__":
    sys.exit(attempt_all([(1, (healthy,)), (1, (old_blas_core,)), (1, (too_many_ranks,)), (1, (single_jobs,)), (1, (checkpoint_folder,)), (1, (small_pages,)),
                          (1, (storage_targets,)), (1, (fabric_files,)), (2, (fabric_files,)), (2, (axes,)), (4, (each_axis,))]))
