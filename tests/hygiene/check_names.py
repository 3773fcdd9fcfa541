# SPDX-License-Identifier: Apache-2.0
"""No type of a namespace is defined by two headers of src: a program with both would take either's functions for the other."""

import collections
import re

import source_tree

NAMESPACE = re.compile(r"^(?:inline )?namespace ?([\w:]*) ?\{|^\} // namespace", re.MULTILINE)
TYPE = re.compile(r"^(?:struct|class|enum class|union) (\w+)[^;{(]*\{", re.MULTILINE)


def types_of(text):
    """(name with its namespaces, position) of each type that the text defines in a named namespace."""
    events = sorted([(match.start(), match, None) for match in NAMESPACE.finditer(text)] +
                    [(match.start(), None, match) for match in TYPE.finditer(text)], key=lambda event: event[0])
    inside = []
    for position, namespace, definition in events:
        if definition:
            if "" not in inside:
                yield "::".join([*inside, definition[1]]), position
        elif namespace[0].startswith("}"):
            inside = inside[:-1]
        else:
            inside.append(namespace[1])


def check(root):
    paths = source_tree.files(root, ".hpp", under=("src",))
    places = collections.defaultdict(dict)
    for path in paths:
        text = source_tree.read(root, path)
        for name, position in types_of(text):
            places[name].setdefault(path, source_tree.line_of(text, position))
    problems = []
    for name, found in sorted(places.items()):
        first, *others = sorted(found)
        problems += [f"{other}:{found[other]}: {name} is defined in {first}, too; give one of them another name" for other in others]
    return problems, len(paths)


if __name__ == "__main__":
    source_tree.main(check)
