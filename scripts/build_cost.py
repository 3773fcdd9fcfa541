#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints where the time of a build goes, from Ninja's log and its record of included headers.

usage: scripts/build_cost.py [BUILD_DIR] [--top N]

Folders and objects: seconds that their compilations took. Headers of libraries: seconds to read each by itself, times the objects
that include it. Headers of Orthant: seconds of all objects that a change to it compiles again. Seconds are those of the log: they
are the processor's only if no more compilations ran at a time than there were cores, and only if the compiler ran (no ccache).
"""

import argparse
import collections
import json
import pathlib
import re
import shlex
import subprocess
import tempfile
import time

LIBRARY_HEADERS = ("Kokkos_Core.hpp", "nlohmann/json.hpp", "fmt/format.h", "fmt/ranges.h", "CLI/CLI.hpp", "toml++/toml.h",
                   "spdlog/spdlog.h", "mpi.h", "hdf5.h", "gtest/gtest.h", "gmock/gmock.h")


def seconds_of_objects(build):
    """{object: seconds} of the last compilation of each object."""
    seconds = {}
    for line in (build / ".ninja_log").read_text().splitlines():
        if not line.startswith("#"):
            begin, end, _, output, _ = line.split("\t")
            if output.endswith(".o"):
                seconds[output] = (int(end) - int(begin)) / 1000
    return seconds


def headers_of_objects(build):
    """{object: set of the files that it was compiled from}."""
    headers = collections.defaultdict(set)
    output = None
    for line in subprocess.check_output(["ninja", "-C", build, "-t", "deps"], text=True).splitlines():
        if line.startswith("    "):
            headers[output].add(line.strip())
        elif line:
            output = line.split(":")[0]
    return headers


def folder_of(output):
    """src/pmm/spmm of src/pmm/CMakeFiles/orthant_pmm.dir/spmm/local_spmm.cpp.o; a program of the tests is one of its folder."""
    path = re.sub(r"CMakeFiles/[^/]*\.dir/", "", output).replace("Unity/", "")
    return str(pathlib.PurePath(path).parent)


def seconds_to_read(build, header):
    """Seconds to parse the header with the flags of an object that includes it, less those for an empty file; None if it fails."""
    commands = json.loads((build / "compile_commands.json").read_text())
    command = shlex.split(next(c["command"] for c in commands if "/src/cli/" in c["file"]))
    flags = [word for word in command[command.index("-c") - 1::-1] if word.startswith(("-D", "-std"))]
    flags += [f"-isystem{command[i + 1]}" for i, word in enumerate(command) if word == "-isystem"]
    compiler = next(word for word in command if not word.endswith("ccache"))
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "one.cpp")
        times = []
        for text in ("", f"#include <{header}>\n"):
            source.write_text(text)
            begin = time.monotonic()
            if subprocess.run([compiler, *flags, "-fsyntax-only", source], capture_output=True).returncode != 0:
                return None
            times.append(time.monotonic() - begin)
    return times[1] - times[0]


def print_rows(title, rows, top):
    print(f"\n{title}")
    for seconds, count, name in sorted(rows, reverse=True)[:top]:
        print(f"{seconds:10.1f} s {count:6d}  {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default="build", type=pathlib.Path, help="build tree made by Ninja (default: build)")
    parser.add_argument("--top", type=int, default=20, help="lines of each table (default: 20)")
    arguments = parser.parse_args()
    build = arguments.build
    if not (build / ".ninja_log").exists():
        parser.error(f"{build} is not a build tree of Ninja: it has no .ninja_log")

    seconds = seconds_of_objects(build)
    headers = headers_of_objects(build)
    print(f"{len(seconds)} objects, {sum(seconds.values()):.0f} s")

    folders = collections.defaultdict(lambda: [0.0, 0])
    for output, value in seconds.items():
        folders[folder_of(output)][0] += value
        folders[folder_of(output)][1] += 1
    print_rows("folders: seconds, objects", [(*total, name) for name, total in folders.items()], arguments.top)
    print_rows("objects: seconds", [(value, 1, output) for output, value in seconds.items()], arguments.top)

    rows = []
    for header in LIBRARY_HEADERS:
        count = sum(any(path.endswith("/" + header) for path in headers[output]) for output in seconds)
        alone = seconds_to_read(build, header) if count else None
        if alone is not None:
            rows.append((alone * count, count, f"{header} ({alone:.2f} s each)"))
    print_rows("headers of libraries: seconds in all, objects that include them", rows, arguments.top)

    rebuilt = collections.defaultdict(lambda: [0.0, 0])
    for output, value in seconds.items():
        for path in headers[output]:
            if "/src/" in path and path.endswith((".hpp", ".inc")):
                name = path.split("/src/", 1)[1]
                rebuilt[name][0] += value
                rebuilt[name][1] += 1
    print_rows("headers of Orthant: seconds to compile again after a change, objects",
               [(*total, name) for name, total in rebuilt.items()], arguments.top)


if __name__ == "__main__":
    main()
