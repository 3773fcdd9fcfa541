#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes two tables of Unicode 16: unicode_classes.inc, the letters, numbers and white space, and nfc.inc, the
decompositions and combining classes of normalization form C.

Needs the PyPI package unicodedata2 16.0.0, which holds the Unicode Character Database of that version:

    python3 -m venv unicode && unicode/bin/pip install unicodedata2==16.0.0
    unicode/bin/python scripts/unicode_tables.py src/tokens/bpe

tiktoken and Hugging Face's tokenizers classify every code point the same way (141,028 letters, 1,911 numbers).
"""

import sys

import unicodedata2

VERSION = "16.0.0"
NUM_CODE_POINTS = 0x110000
PER_LINE = 7
# The property White_Space, which the module does not have: str.isspace() without the four separators U+001C to U+001F.
SEPARATORS = range(0x1C, 0x20)


def ranges(belongs):
    """(first, last) of every run of code points for which belongs() is true."""
    runs = []
    for code in range(NUM_CODE_POINTS):
        if belongs(code):
            if runs and runs[-1][1] == code - 1:
                runs[-1][1] = code
            else:
                runs.append([code, code])
    return runs


def table(kind, name, rows, per_line):
    items = ["{" + ", ".join(f"0x{number:x}" for number in row) + "}" for row in rows]
    lines = [", ".join(items[i:i + per_line]) for i in range(0, len(items), per_line)]
    return f"constexpr std::array<{kind}, {len(items)}> {name}{{{{\n" + ",\n".join(lines) + "}};\n"


def classes():
    category = [unicodedata2.category(chr(code))[0] for code in range(NUM_CODE_POINTS)]
    text = "// First and last code point of each run of a class.\n"
    text += table("CodeRange", "letters", ranges(lambda code: category[code] == "L"), PER_LINE)
    text += table("CodeRange", "numbers", ranges(lambda code: category[code] == "N"), PER_LINE)
    return text + table("CodeRange", "spaces", ranges(lambda code: chr(code).isspace() and code not in SEPARATORS), PER_LINE)


def normalization():
    composing, other = [], []
    for code in range(NUM_CODE_POINTS):
        fields = unicodedata2.decomposition(chr(code)).split()
        if not fields or fields[0].startswith("<"):
            continue
        parts = [int(field, 16) for field in fields] + [0] * (2 - len(fields))
        composes = len(fields) == 2 and unicodedata2.normalize("NFC", chr(parts[0]) + chr(parts[1])) == chr(code)
        (composing if composes else other).append([code, *parts])
    combining = [unicodedata2.combining(chr(code)) for code in range(NUM_CODE_POINTS)]
    runs = []
    for number in sorted(set(combining) - {0}):
        runs += [[first, last, number] for first, last in ranges(lambda code, number=number: combining[code] == number)]
    text = "// A code point and the two that it decomposes into and is composed of; the Hangul syllables follow a rule.\n"
    text += table("Decomposition", "composing", composing, PER_LINE)
    text += "// The same of those that are not composed; 0 if it decomposes into one code point.\n"
    text += table("Decomposition", "not_composing", other, PER_LINE)
    text += "// First and last code point of each run of a combining class, and the class.\n"
    return text + table("CombiningRange", "combining", sorted(runs), PER_LINE)


def main():
    if unicodedata2.unidata_version != VERSION:
        sys.exit(f"unicodedata2 has Unicode {unicodedata2.unidata_version}; install unicodedata2=={VERSION}")
    head = f"// Made by scripts/unicode_tables.py from unicodedata2 {VERSION}: Unicode {unicodedata2.unidata_version}.\n"
    for name, text in (("unicode_classes.inc", classes()), ("nfc.inc", normalization())):
        with open(f"{sys.argv[1]}/{name}", "w", encoding="ascii") as file:
            file.write(head + text)


if __name__ == "__main__":
    main()
