# SPDX-License-Identifier: Apache-2.0
"""on_device.py [--out FOLDER] [--limit SECONDS] STEP ..: steps of scripts/gpu_check.sh as a test.

It passes where every step passed, and is skipped where the steps cannot run. They run the programs of $ORTHANT_GPU_TREE,
which scripts/make_gpu_tree.sh packed.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

SKIPPED = 77
CHECK = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(CHECK / "gpu_check"))
sys.dont_write_bytecode = True
import machine  # noqa: E402


def judge(steps, records):
    """The exit status for the asked steps, and a line for each that did not pass."""
    of_step = {record["step"]: record for record in records if "step" in record and "result" in record}
    lines, results = [], set()
    for step in steps:
        record = of_step.get(step, {"result": "not run", "reason": "no time was left, or the check ended early"})
        results.add(record["result"])
        if record["result"] not in ("passed", "done"):
            lines.append(f"{step}: {record['result']}: {record['reason']}")
    if results - {"passed", "done", "skipped"}:
        return 1, lines
    return SKIPPED if "skipped" in results else 0, lines


def run_steps(steps, tree, out, limit):
    results = out / "results.jsonl"
    results.unlink(missing_ok=True)  # of an earlier run
    command = [CHECK / "gpu_check.sh", "--tree", tree, "--out", out, "--limit", str(limit), "--only", ",".join(steps)]
    done = subprocess.run(command, check=False)
    text = results.read_text() if results.exists() else ""
    status, lines = judge(steps, [json.loads(line) for line in text.splitlines()])
    print("\n".join(lines))
    return done.returncode or status


def main(arguments):
    parser = argparse.ArgumentParser(prog="on_device.py", description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("on-device"), help="what gpu_check.sh writes")
    parser.add_argument("--limit", type=float, default=0, help="seconds for all of the steps (0: none)")
    parser.add_argument("steps", nargs="+", metavar="STEP")
    options = parser.parse_args(arguments)
    machine.add_usual_places()
    if not machine.device():
        print("needs a device: nvidia-smi shows none here")
        return SKIPPED
    tree = os.environ.get("ORTHANT_GPU_TREE")
    if not tree:
        print("needs ORTHANT_GPU_TREE, a tree of scripts/make_gpu_tree.sh")
        return SKIPPED
    return run_steps(options.steps, tree, options.out, options.limit)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
