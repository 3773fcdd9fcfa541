# SPDX-License-Identifier: Apache-2.0
"""Who may include whom: the folders of src know only those below them; graph and pmm never see each other.

In a folder, a sub-folder knows only those before it in SUB_FOLDERS.
"""

import pathlib
import re

import source_tree

MAY_INCLUDE = {
    "runtime": {"runtime"},
    "graph": {"graph", "runtime"},
    "pmm": {"pmm", "runtime"},
    "sampling": {"sampling", "graph", "runtime"},
    "tokens": {"tokens", "runtime"},
    "models": {"models", "tokens", "sampling", "pmm", "graph", "runtime"},
    "cli": {"cli", "models", "tokens", "sampling", "pmm", "graph", "runtime"},
}
# Sub-folders, lowest first: a file includes only its own and those before it. "." is the folder itself, the lowest
# where it is not named.
SUB_FOLDERS = {
    "runtime": ". device numbers observe comm backends files machine arrays report job",
    "graph": ". text arrays write generate read store checks partition",
    "pmm": "grid cost simulate kernels vendor gemm tall_gemm spmm matrix product aggregate edges relations neighbors pairs rows token_rows attention experts",
    "tokens": ". bpe documents",
    "models": "parameters layers gnn/operands training/jorge training/pruning training training/checkpoint gnn/links gnn/plan gnn/aggregation gnn/layers gnn/network gnn/files gnn/batches "
              "gnn/pruning lm/plan lm/adapters lm/pipeline lm/files lm/experts lm/transformer lm/training",
    "cli": "machine options training lm plan study report doctor commands bench .",
}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+(["<])([^">]+)[">]', re.MULTILINE)


def sub_folders(folder):
    names = SUB_FOLDERS.get(folder, ".").split()
    return names if "." in names else [".", *names]


def sub_folder(parts):
    """That of "folder/sub/file"; "." of "folder/file"."""
    return "/".join(parts[1:-1]) or "."


def check(root):
    problems = []
    paths = source_tree.files(root, ".hpp", ".cpp", ".cu", ".inc", under=("src",))
    for path in paths:
        folder = path.parts[1]
        text = source_tree.read(root, path)
        includes = [(match.group(1), match.group(2), source_tree.line_of(text, match.start()))
                    for match in INCLUDE.finditer(text)]
        if folder not in MAY_INCLUDE:
            problems.append(f"{path}:1: src/{folder} has no place in the order of folders")
            continue
        order = sub_folders(folder)
        own_sub = sub_folder(path.parts[1:])
        if own_sub not in order:
            problems.append(f"{path}:1: src/{folder}/{own_sub} has no place in SUB_FOLDERS")
            continue
        for kind, name, line in includes:
            target = name.split("/")[0]
            if kind == "<":
                if target in MAY_INCLUDE and (pathlib.Path(root) / "src" / name).exists():
                    problems.append(f'{path}:{line}: write our own headers as "{name}"')
                elif folder == "graph" and name.startswith("Kokkos"):
                    problems.append(f"{path}:{line}: graph is host code and includes no Kokkos")
                continue
            if "/" not in name or target not in MAY_INCLUDE:
                problems.append(f'{path}:{line}: "{name}" is not of the form "folder/sub-folder/file.hpp"')
            elif target not in MAY_INCLUDE[folder]:
                problems.append(f"{path}:{line}: src/{folder} may not include src/{target} ({name})")
            elif target == folder:
                sub = sub_folder(name.split("/"))
                if sub not in order:
                    problems.append(f"{path}:{line}: src/{folder}/{sub} has no place in SUB_FOLDERS ({name})")
                elif order.index(sub) > order.index(own_sub):
                    problems.append(f"{path}:{line}: {own_sub} stands below {sub} in src/{folder} ({name})")
        own = path.with_suffix(".hpp")
        own_name = "/".join(own.parts[1:])
        if path.suffix == ".cpp" and (pathlib.Path(root) / own).exists():
            if not includes or includes[0][1] != own_name:
                problems.append(f'{path}:1: the first include should be its own header, "{own_name}"')
    return problems, len(paths)


if __name__ == "__main__":
    source_tree.main(check)
