# SPDX-License-Identifier: Apache-2.0
"""clang-format 14 with the committed .clang-format changes nothing. Other versions format differently: skipped."""

import re
import shutil
import subprocess
import sys

import source_tree

VERSION = 14


def clang_format():
    for name in (f"clang-format-{VERSION}", "clang-format"):
        program = shutil.which(name)
        if not program:
            continue
        text = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
        if re.search(rf"version {VERSION}\.", text):
            return program
    return None


def check(root):
    program = clang_format()
    if program is None:
        print(f"skipped: clang-format {VERSION} is not on PATH")
        sys.exit(source_tree.SKIPPED)
    paths = source_tree.files(root, ".hpp", ".cpp", under=("src", "tests"))
    run = subprocess.run([program, "--dry-run", "--style=file", *map(str, paths)], cwd=root, capture_output=True,
                         text=True, check=False)
    if run.returncode != 0:
        return [run.stderr], len(paths)
    lines = re.findall(r"^(.*?:\d+):\d+: warning", run.stderr, re.MULTILINE)
    return [f"{line}: clang-format would change this" for line in dict.fromkeys(lines)], len(paths)


if __name__ == "__main__":
    source_tree.main(check)
