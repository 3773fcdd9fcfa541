#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/tokens/bpe/unicode_classes.inc: the letters, numbers and white space of Unicode 16.

Needs the PyPI package unicodedata2 16.0.0, which holds the Unicode Character Database of that version:

    python3 -m venv unicode && unicode/bin/pip install unicodedata2==16.0.0
    unicode/bin/python scripts/unicode_tables.py src/tokens/bpe/unicode_classes.inc

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


def table(name, runs):
    items = [f"{{0x{first:x}, 0x{last:x}}}" for first, last in runs]
    lines = [", ".join(items[i:i + PER_LINE]) for i in range(0, len(items), PER_LINE)]
    return f"constexpr std::array<CodeRange, {len(items)}> {name}{{{{\n" + ",\n".join(lines) + "}};\n"


def main():
    if unicodedata2.unidata_version != VERSION:
        sys.exit(f"unicodedata2 has Unicode {unicodedata2.unidata_version}; install unicodedata2=={VERSION}")
    category = [unicodedata2.category(chr(code))[0] for code in range(NUM_CODE_POINTS)]
    text = (f"// Made by scripts/unicode_tables.py from unicodedata2 {VERSION}: Unicode {unicodedata2.unidata_version}.\n"
            "// First and last code point of each run of a class.\n")
    text += table("letters", ranges(lambda code: category[code] == "L"))
    text += table("numbers", ranges(lambda code: category[code] == "N"))
    text += table("spaces", ranges(lambda code: chr(code).isspace() and code not in SEPARATORS))
    with open(sys.argv[1], "w", encoding="ascii") as file:
        file.write(text)


if __name__ == "__main__":
    main()
