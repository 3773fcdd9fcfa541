# SPDX-License-Identifier: Apache-2.0
"""The files that the checks read, and the way they report."""

import os
import pathlib
import sys

SKIPPED = 77  # ctest's SKIP_RETURN_CODE


def files(root, *suffixes, under=()):
    """Paths relative to `root` of every file with one of `suffixes` (all if none), without build trees and the like."""
    root = pathlib.Path(root)
    found = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(
            name for name in subfolders
            if not name.startswith("build") and name not in (".git", ".deps", ".cache", "__pycache__"))
        for name in sorted(names):
            path = (pathlib.Path(folder) / name).relative_to(root)
            if suffixes and path.suffix not in suffixes:
                continue
            if under and path.parts[0] not in under:
                continue
            found.append(path)
    return found


def read(root, path):
    return (pathlib.Path(root) / path).read_text(encoding="utf-8", errors="replace")


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def report(problems, num_checked):
    """Prints what was found; the status to leave with. Nothing checked is a mistake of the caller."""
    for problem in problems:
        print(problem)
    print(f"{num_checked} files checked, {len(problems)} problems")
    return 1 if problems or num_checked == 0 else 0


def main(check):
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} SOURCE_DIR")
    sys.exit(report(*check(sys.argv[1])))
