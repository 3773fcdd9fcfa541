# SPDX-License-Identifier: Apache-2.0
"""Combinations that the program refuses, against the table in the section "What is refused" of docs/graph_models.md."""

import collections
import re

MOST_REFUSALS = 10  # rows of the table


def documented_rows(path):
    """Both columns of the table, without its head."""
    with open(path, encoding="utf-8") as file:
        section = re.search(r"^## What is refused\n(.*?)(?=^## |\Z)", file.read(), re.M | re.S)
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", section[1].replace("`", ""), re.M) if section else []
    return rows[1:]


def documented_refusals(path):
    """The first column of the table; nothing without that section."""
    return [refused for refused, _ in documented_rows(path)]


def are_documented(sentences, path):
    """Prints how often each sentence occurs. True if each begins with a row of the table, which is short enough, or if there is no table."""
    documented = documented_refusals(path)
    unknown = 0
    for sentence, times in collections.Counter(sentences).most_common():
        is_known = any(sentence.startswith(row) for row in documented)
        unknown += not is_known
        print(f"refused {times} times{'' if is_known else ', but not documented'}: {sentence}")
    return not documented or (unknown == 0 and len(documented) <= MOST_REFUSALS)
