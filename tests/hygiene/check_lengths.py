# SPDX-License-Identifier: Apache-2.0
"""No source, test, script or document has more lines than a reader can keep in mind; a longer one is split by idea.

Data are exempt: files of a format that programs write, and the licence, whose text is not ours.
"""

import source_tree

MOST_LINES = 400
DATA_FORMATS = (".csv", ".gz", ".h5", ".json", ".mtx", ".npy", ".npz")


def is_data(path):
    return path.suffix in DATA_FORMATS or path.name == "LICENSE"


def check(root):
    problems = []
    paths = source_tree.files(root)
    for path in paths:
        num_lines = 0 if is_data(path) else len(source_tree.read(root, path).splitlines())
        if num_lines > MOST_LINES:
            problems.append(f"{path}:{num_lines}: more than {MOST_LINES} lines; one idea per file")
    return problems, len(paths)


if __name__ == "__main__":
    source_tree.main(check)
