# SPDX-License-Identifier: Apache-2.0
"""compare_torch_test.py ORTHANT PART, where PART is
  mistakes   compare_torch.py says what it takes, and in one line what is wrong
  run        two ranks and two threads of torch train a tiny graph and their losses agree; both compute on the device where
             ORTHANT is built for CUDA; skipped without a torch for that
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ORTHANT, PART = sys.argv[1:]
SCRIPT = pathlib.Path(__file__).with_name("compare_torch.py")
TRAINER = pathlib.Path(__file__).with_name("torch_trainer.py")
SKIPPED = 77


def run(*arguments, expect):
    done = subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True, timeout=200,
                          env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"})
    if done.returncode != expect:
        sys.exit(f"{arguments}: status {done.returncode}, expected {expect}\n{done.stdout}{done.stderr}")
    return done


def mistake(*arguments, says):
    done = run(*arguments, expect=2)
    lines = done.stderr.splitlines()
    if done.stdout or len(lines) != 1 or says not in lines[0]:
        sys.exit(f"{arguments}: one line with {says!r} was expected\n{done.stdout}{done.stderr}")


def device_of_program():
    """Where ORTHANT computes, as compare_torch.py reads it."""
    done = subprocess.run([ORTHANT, "--version"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{ORTHANT} --version: status {done.returncode}\n{done.stdout}{done.stderr}")
    return "cuda" if "(default Cuda)" in done.stdout else "cpu"


def find_torch(device):
    """The first of these interpreters that imports torch, for CUDA one whose torch has a device."""
    for python in dict.fromkeys([sys.executable, "/usr/bin/python3"]):
        done = subprocess.run([python, TRAINER, "probe"], capture_output=True, text=True, check=False)
        found = json.loads(done.stdout) if done.returncode == 0 else {"torch": None}
        if found["torch"] and (device == "cpu" or found["cuda"]):
            return python
    return None


def check_mistakes():
    text = run("--help", expect=0).stdout
    for flag in ("--graph", "--case", "--table", "--ranks", "--device", "--mode", "--batch", "--python", "--orthant", "--json"):
        if flag not in text:
            sys.exit(f"--help lacks {flag}\n{text}")
    mistake(says="one of the arguments --graph --case --table is required")
    mistake("--case", "tiny", "--epochs", 1, says="--epochs 1: must be at least 2")
    mistake("--case", "tiny", "--ranks", "two", says="--ranks")
    mistake("--graph", "no/such.h5", says="no/such.h5: there is no such file")
    mistake("--case", "tiny", "--orthant", "no/such/program", says="there is no such program")
    mistake("--case", "tiny", "--orthant", ORTHANT, "--python", "no/such/python", says="no/such/python")
    mistake("--case", "tiny", "--device", "cuda", "--mode", "minibatch", says="leave out --mode minibatch")


def check_run(folder):
    device = device_of_program()
    python = find_torch(device)
    if python is None:
        print("skipped: no interpreter has " + ("torch" if device == "cpu" else "a torch with a CUDA device"))
        sys.exit(SKIPPED)
    common = ["--orthant", ORTHANT, "--python", python, "--device", device, "--work", folder, "--hidden", 16, "--epochs", 4,
              "--repeats", 1]
    report = pathlib.Path(folder) / "result.json"
    text = run("--case", "tiny", *common, "--json", report, expect=0).stdout
    if "losses of the first 4 epochs agree to" not in text or text.count("\nround ") != 1:
        sys.exit(f"not the report that was expected\n{text}")
    if json.loads(report.read_text())["installed"]["cuda"] is None:
        mistake("--case", "tiny", *common, "--device", "cuda", says="has no CUDA device: ")
    case = json.loads(report.read_text())["cases"][0]
    for side in (case["orthant"], *case["torch"].values()):
        if len(side["losses"]) != 4 or not side["losses"][-1] < side["losses"][0] or min(side["peak_bytes"]) < 2**20:
            sys.exit(f"losses that do not fall, or no memory\n{json.dumps(case, indent=1)}")
    # Training that is not the same must be noticed.
    done = run("--case", "tiny", *common, "--extra=--weight-decay 1", expect=1)
    if "the losses differ by more than" not in done.stderr:
        sys.exit(f"losses that differ went unnoticed\n{done.stdout}{done.stderr}")


if PART == "mistakes":
    check_mistakes()
else:
    with tempfile.TemporaryDirectory() as work:
        check_run(work)
