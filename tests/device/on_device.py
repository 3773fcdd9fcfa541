# SPDX-License-Identifier: Apache-2.0
"""on_device.py STEP ..: steps of scripts/gpu_check.sh as a test, which is skipped where they cannot run.

They run the programs of $ORTHANT_GPU_TREE, which scripts/make_gpu_tree.sh packed.
"""
import os
import pathlib
import subprocess
import sys

SKIPPED = 77
CHECK = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(CHECK / "gpu_check"))
import machine  # noqa: E402


def main(steps):
    machine.add_usual_places()
    if not machine.device():
        print("needs a device: nvidia-smi shows none here")
        return SKIPPED
    tree = os.environ.get("ORTHANT_GPU_TREE")
    if not tree:
        print("needs ORTHANT_GPU_TREE, a tree of scripts/make_gpu_tree.sh")
        return SKIPPED
    return subprocess.run([CHECK / "gpu_check.sh", "--tree", tree, "--only", ",".join(steps)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
