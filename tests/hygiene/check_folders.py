# SPDX-License-Identifier: Apache-2.0
"""No folder of src or tests holds more files than a reader can survey; a fuller one gets sub-folders."""

import collections

import source_tree

MOST_FILES = 25


def check(root):
    paths = source_tree.files(root, under=("src", "tests"))
    counts = collections.Counter(path.parent for path in paths)
    problems = [f"{folder}:1: {count} files; at most {MOST_FILES}, so give it sub-folders"
                for folder, count in sorted(counts.items()) if count > MOST_FILES]
    return problems, len(paths)


if __name__ == "__main__":
    source_tree.main(check)
