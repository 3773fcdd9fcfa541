# SPDX-License-Identifier: Apache-2.0
"""What the text of a file must and must not hold: licence line, include guard, no machine's paths, nothing unfinished,
no names that belong to a higher folder."""

import re

import source_tree

SOURCES = (".hpp", ".cpp", ".py", ".sh")
EVERYWHERE = {
    r"(?<![\w.$}])/(?:work|root|home|Users|scratch)/|(?<![\w.$}])/tmp/": "a path of one machine",
    r"pypi\.org|npmjs\.|crates\.io|proxy\.golang|index-url": "a package registry",
    r"\b(?:TODO|FIXME|XXX)\b": "unfinished work",
}
# What vertices have is named in graph and models: a language model stands on these folders, too.
WITHOUT_VERTICES = (("src", "pmm"), ("src", "runtime"))
OF_VERTICES = {
    r"\b(?:train|valid|val|test)_(?:acc|loss|mask|rows|split)|\b(?:no|num)_splits?\b": "a split of vertices",
    r"\b[Aa]ccurac(?:y|ies)\b": "a score that models name",
    r"\b[Ss]trat(?:um|a)\b": "a stratum of sampling",
    r"\borders?[ _]p[12]\b": "an order of vertices",
}
IN_HEADERS = {r"^\s*using namespace\b": "`using namespace` in a header"}
VAGUE_NAMES = {"utils", "util", "misc", "common", "helpers", "helper"}


def check(root):
    problems = []
    paths = [path for path in source_tree.files(root, *SOURCES, ".cmake", ".md", ".txt", ".toml", ".json", ".in", "")
             if path.parts[:2] != ("tests", "hygiene") and path.name != "LICENSE"]
    for path in paths:
        text = source_tree.read(root, path)
        head = "\n".join(text.split("\n")[:3])
        patterns = dict(EVERYWHERE)
        if path.suffix in SOURCES and "SPDX-License-Identifier: Apache-2.0" not in head:
            problems.append(f"{path}:1: no SPDX line at the top")
        if path.suffix == ".hpp":
            patterns.update(IN_HEADERS)
            if "#pragma once" not in head:
                problems.append(f"{path}:1: no #pragma once at the top")
        if path.parts[:2] in WITHOUT_VERTICES:
            patterns.update(OF_VERTICES)
        if path.stem in VAGUE_NAMES:
            problems.append(f"{path}:1: the name says nothing about what is inside")
        for pattern, what in patterns.items():
            for match in re.finditer(pattern, text, re.MULTILINE):
                problems.append(f"{path}:{source_tree.line_of(text, match.start())}: {what}: {match.group().strip()}")
    return problems, len(paths)


if __name__ == "__main__":
    source_tree.main(check)
