#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# An OpenBLAS that takes the processor for an old one is started again with the right core type, once:
# blas_core.py PROGRAM FAKE_OPENBLAS.

import json
import os
import platform
import re
import subprocess
import sys
import tempfile

PROGRAM, FAKE = sys.argv[1:]
MPIRUN = os.environ["ORTHANT_MPIRUN"].split()
DYNAMIC = "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH NO_AFFINITY Prescott MAX_THREADS=64"
SLOW = "orthant: warning: dense products are slow: OpenBLAS 0.3.21 uses its kernels of "
OWN = ("OPENBLAS_CORETYPE", "ORTHANT_REPLACED_BLAS_CORE")


def best_core():
    """By what the system says of the processor; None if this machine has nothing to show."""
    if platform.machine() != "x86_64":
        return None
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        text = file.read()
    flags = set(re.search(r"^flags\s*:(.*)$", text, re.M).group(1).split())
    if flags >= {"avx512f", "avx512cd", "avx512dq", "avx512bw", "avx512vl"}:
        return "SkylakeX"
    if flags >= {"avx2", "fma"}:
        return "Haswell" if "GenuineIntel" in text else "Zen"
    return "Sandybridge" if "avx" in flags else None


class Run:
    """A job with the fake library. `starts` has a list of core types for each process, one for every time it was loaded."""

    def __init__(self, arguments, ranks=1, launcher=(), detected="Prescott", config=DYNAMIC, **variables):
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "log")
            fake = {"LD_PRELOAD": FAKE, "FAKE_DETECTED": detected, "FAKE_CONFIG": config, "FAKE_LOG": log} | variables
            # The library is for the ranks alone, not for mpirun.
            command = MPIRUN + [str(ranks), "env"] + [f"{key}={value}" for key, value in fake.items()]
            environment = {key: value for key, value in os.environ.items() if key not in OWN}
            environment["ASAN_OPTIONS"] = environment.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
            done = subprocess.run(command + list(launcher) + [PROGRAM] + arguments, stdin=subprocess.DEVNULL, text=True,
                                  capture_output=True, timeout=90, env=environment, check=False)
            self.output, self.errors = done.stdout, done.stderr
            self.text = f"\nstatus {done.returncode}\nstdout: {done.stdout}\nstderr: {done.stderr}"
            self.starts = {}
            with open(log, encoding="utf-8") as file:
                for process, program, core in map(str.split, file):
                    if os.path.basename(program) not in ("env", "bash"):
                        self.starts.setdefault(process, []).append(core)
        require(done.returncode == 0, "does not end well", self)
        require(len(self.starts) == ranks, f"{self.starts} is not of {ranks} processes", self)

    def require_starts(self, *cores):
        for of_process in self.starts.values():
            require(of_process == list(cores), f"is loaded as {of_process}, not {list(cores)}", self)

    def require_blas(self, text):
        require(f"\nBLAS        {text}\n" in self.output, f"does not call its BLAS '{text}'", self)

    def require_warning(self, pattern):
        lines = [line for line in self.errors.splitlines() if "warning" in line and "slow" in line]
        expected = 0 if pattern is None else 1
        require(len(lines) == expected, f"{len(lines)} warnings, not {expected}", self)
        if pattern is not None:
            require(lines[0].startswith(SLOW) and re.search(pattern, lines[0]), f"does not warn of /{pattern}/", self)


def require(condition, what, run):
    if not condition:
        sys.exit(f"FAIL: {what}{run.text}")


def restarts(best):
    for ranks in (1, 2):
        run = Run(["info"], ranks)
        run.require_starts("Prescott", best)
        run.require_blas(f"OpenBLAS 0.3.21, kernels of {best} (its own choice was Prescott)")
        run.require_warning(None)
    # Under another name, and through a loader, which then is the program that the system executes.
    Run(["info"], launcher=["bash", "-c", 'exec -a other "$0" "$@"']).require_starts("Prescott", best)
    loader = re.search(r"\s(/\S*/ld-linux\S*)", subprocess.check_output(["ldd", PROGRAM], text=True))
    if loader:
        run = Run(["info"], launcher=[loader.group(1)])
        run.require_starts("Prescott", best)
    # Words with blanks and empty ones are the same words the second time: the name of a file is printed back.
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "a b.jsonl")
        run = Run(["train", "--dataset", "karate", "--epochs", "1", "--metrics", metrics], 2)
        run.require_starts("Prescott", best)
        run.require_warning(None)
        with open(metrics, encoding="utf-8") as file:
            backends = json.loads(file.readline())["backends"]
        require((backends["blas"], backends["blas_core"]) == ("OpenBLAS 0.3.21", best), f"backends {backends}", run)


def leaves_alone(best):
    for core in (best, "Zen9"):
        run = Run(["info"], detected=core)
        run.require_starts(core)
        run.require_blas(f"OpenBLAS 0.3.21, kernels of {core}")
        run.require_warning(None)
    run = Run(["info"], OPENBLAS_CORETYPE="Nehalem")
    run.require_starts("Nehalem")
    run.require_blas("OpenBLAS 0.3.21, kernels of Nehalem (OPENBLAS_CORETYPE=Nehalem)")
    run.require_warning(None)


def warns(best):
    train = ["train", "--dataset", "karate", "--epochs", "1"]
    run = Run(train, 2, FAKE_DEAF="1")
    run.require_starts("Prescott", "Prescott")
    run.require_warning(rf"Prescott, with SSE, .*; it does not take OPENBLAS_CORETYPE={best}: use a newer OpenBLAS$")
    run = Run(train, FAKE_DEAF="1", OPENBLAS_CORETYPE="SapphireRapids")
    run.require_starts("Prescott")
    run.require_warning(rf"; it does not take OPENBLAS_CORETYPE=SapphireRapids: set {best}$")
    run = Run(train, 2, FAKE_NO_EXEC="1")
    run.require_starts("Prescott")
    run.require_warning(rf"; set OPENBLAS_CORETYPE={best} \(the program could not do it itself\)$")
    for arguments in (train, ["info"]):
        run = Run(arguments, 2, detected="PRESCOTT", config="OpenBLAS 0.3.21 NO_LAPACKE NO_AFFINITY PRESCOTT MAX_THREADS=64")
        run.require_starts("PRESCOTT")
        run.require_warning(r"; it was built for these alone: use one that was built with DYNAMIC_ARCH=1$")


def main():
    best = best_core()
    if best is None:
        print("this processor has no vectors that an old core type lacks")
        sys.exit(77)
    for part in (restarts, leaves_alone, warns):
        part(best)
        print(f"ok   {part.__name__}")


if __name__ == "__main__":
    main()
