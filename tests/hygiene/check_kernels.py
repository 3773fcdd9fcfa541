# SPDX-License-Identifier: Apache-2.0
"""Kernels and allocations carry labels, "orthant::<folder>::...", so that profilers and error messages name them.

A label that is a variable passes: its value is checked where it is written. Loops inside a team take none.
"""

import re

import source_tree

KERNEL = re.compile(r"\bparallel_(?:for|reduce|scan)\s*\(\s*")
ALLOCATION = re.compile(r"\bview_alloc\s*\(")
# Vector<T>("..", n), Kokkos::View<T*> name("..", n), Matrix<T, Exec> name{"..", n, m}
VIEW = re.compile(r'\b(?:View|Vector|Matrix)\s*<[^;"]*?>\s*\w*\s*[({]\s*"([^"]*)"')
NESTED = re.compile(r"(?:Kokkos::)?(?:Team\w*Range|ThreadVectorRange|PerTeam|PerThread)\b")
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')


def arguments(text, start):
    """What stands between the parenthesis that opens just before `start` and the one that closes it."""
    depth = 1
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return text[start:position]
    return text[start:]


def without_comments(text):
    return re.sub(r"//[^\n]*", lambda match: " " * len(match.group()), text)


def check(root):
    problems = []
    paths = source_tree.files(root, ".hpp", ".cpp", under=("src",))
    for path in paths:
        prefix = f"orthant::{path.parts[1]}::"
        text = without_comments(source_tree.read(root, path))

        def complain(position, what):
            problems.append(f'{path}:{source_tree.line_of(text, position)}: {what} (wanted: "{prefix}..")')

        for match in KERNEL.finditer(text):
            first = text[match.end():match.end() + 200]
            if NESTED.match(first):
                continue
            literal = LITERAL.match(first)
            if literal and not literal.group(1).startswith(prefix):
                complain(match.start(), f'kernel label "{literal.group(1)}"')
            elif not literal and not re.match(r"(?:std::string\()?\w*label\w*\b", first):
                complain(match.start(), "kernel without a label")
        for match in ALLOCATION.finditer(text):
            inside = arguments(text, match.end())
            literal = LITERAL.search(inside)
            if literal and not literal.group(1).startswith(prefix):
                complain(match.start(), f'allocation label "{literal.group(1)}"')
            elif not literal and "label" not in inside:
                complain(match.start(), "allocation without a label")
        for match in VIEW.finditer(text):
            if not match.group(1).startswith(prefix):
                complain(match.start(), f'allocation label "{match.group(1)}"')
    return problems, len(paths)


if __name__ == "__main__":
    source_tree.main(check)
