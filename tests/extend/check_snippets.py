#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the C++ code of the pages with the sources that it comes from: check_snippets.py ROOT [--write]

A page names a region of a source directly above a fence,

    <!-- code: tests/extend/layer_test.cpp layer -->
    ```cpp
    ..
    ```

and the source has the region between the comments `// [docs:layer]` and `// [docs:end]`. The block must have the same lines. A
region has fewer than 100 lines and stands in a page. --write copies the regions into the pages. The status is 1 if something
differs.
"""

import pathlib
import re
import sys

PAGES = ("docs/extend/*.md", "docs/cpp_api.md", "examples/cpp_layer/README.md")
SOURCES = ("tests/extend/*.cpp", "examples/cpp_layer/*.hpp", "examples/cpp_layer/*.cpp", "examples/cpp_layer/CMakeLists.txt",
           "examples/own_convolution/*.cpp")
MOST_LINES = 99

MARK = re.compile(r"^<!-- code: (\S+) (\S+) -->$")
BEGIN = re.compile(r"^(?://|#) \[docs:(\w+)\]$")


def regions_of(path):
    """Lines by name, and errors."""
    regions, errors, name = {}, [], None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        begin = BEGIN.match(line)
        if begin and begin.group(1) == "end":
            if name is None:
                errors.append(f"{path}:{number}: there is no region to end")
            name = None
        elif begin:
            if name is not None or begin.group(1) in regions:
                errors.append(f"{path}:{number}: the region {begin.group(1)} begins in another one, or a second time")
            name = begin.group(1)
            regions[name] = []
        elif name is not None:
            regions[name].append(line)
        elif "[docs:" in line:
            errors.append(f"{path}:{number}: a mark of a region is a line of its own without indentation")
    if name is not None:
        errors.append(f"{path}: the region {name} does not end")
    errors += [f"{path}: the region {name} has {len(lines)} lines, and at most {MOST_LINES} are allowed"
               for name, lines in regions.items() if len(lines) > MOST_LINES]
    return regions, errors


def check_page(page, name, sources, writes):
    """What is wrong, and the regions that the page shows."""
    lines, errors, shown, result = page.read_text(encoding="utf-8").splitlines(), [], set(), []
    i = 0
    while i < len(lines):
        result.append(lines[i])
        mark = MARK.match(lines[i])
        i += 1
        if mark is None:
            continue
        path, region = mark.groups()
        shown.add((path, region))
        code = sources.get(path, {}).get(region)
        end = next((k for k in range(i + 1, len(lines)) if lines[k] == "```"), None)
        if code is None:
            errors.append(f"{name}:{i}: {path} has no region {region}")
        elif i >= len(lines) or not lines[i].startswith("```") or end is None:
            errors.append(f"{name}:{i}: a fenced block is expected below")
        else:
            if lines[i + 1:end] != code and not writes:
                different = next((k for k, pair in enumerate(zip(lines[i + 1:end], code)) if pair[0] != pair[1]),
                                 min(end - i - 1, len(code)))
                errors.append(f"{name}:{i + 2 + different}: differs from the region {region} of {path}; "
                              f"tests/extend/check_snippets.py . --write copies it")
            result += [lines[i], *code, "```"]
            i = end + 1
    if writes and result != lines:
        page.write_text("\n".join(result) + "\n", encoding="utf-8")
    return errors, shown


def main(arguments):
    writes = "--write" in arguments
    roots = [argument for argument in arguments if argument != "--write"]
    if len(roots) != 1:
        return "usage: check_snippets.py ROOT [--write]"
    root = pathlib.Path(roots[0])
    sources, errors, shown, num_pages = {}, [], set(), 0
    for pattern in SOURCES:
        for path in sorted(root.glob(pattern)):
            sources[str(path.relative_to(root))], found = regions_of(path)
            errors += found
    for pattern in PAGES:
        for page in sorted(root.glob(pattern)):
            found, of_page = check_page(page, page.relative_to(root), sources, writes)
            errors += found
            shown |= of_page
            num_pages += 1
    errors += [f"{path}: no page shows the region {name}"
               for path, regions in sources.items() for name in regions if (path, name) not in shown]
    for error in errors:
        print(error)
    print(f"{num_pages} pages with {len(shown)} regions of code, {len(errors)} errors")
    return 1 if errors or not shown else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
