# SPDX-License-Identifier: Apache-2.0
"""The tests of a build tree as a list that needs no ctest to run them.

test_list.py KIND=BUILD .. [--source DIR --packed] > tests.json

A test is its name, command, environment, time limit, labels, number of ranks and what says that it was skipped. With
--packed the paths become those of a relocated tree: @TREE@/libexec/KIND for programs, @TREE@/share/orthant/source for
drivers, and plain mpirun and python3. Tests of the source tree itself (hygiene, consumer), those that call gpu_check (device) and
those of sizes that only hosts have time for do not travel; their names are listed as left out. Nor do those with the label soak.
"""
import argparse
import json
import os
import re
import subprocess
import sys

# What needs the source or the build tree, looks at sources alone, or is too long.
STAYS_AT_HOME = re.compile(r"^(hygiene|consumer|device|docs)\.|^extend\.(snippets|cpp_layer)$|"
                           r"\.(longer_sums|large_broadcast|round_trip_of_all|balance_of_seeds)\b")
SOURCE = "@TREE@/share/orthant/source"
DATA = "@TREE@/share/orthant/data"


def ctest_entries(build):
    done = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"test_list: error: ctest knows no tests in {build}: {done.stderr.strip()}")
    return json.loads(done.stdout)["tests"]


def properties_of(entry):
    return {one["name"]: one["value"] for one in entry.get("properties", [])}


def ranks_of(name, properties):
    match = re.search(r"\.np([0-9]+)$", name)
    return int(match.group(1)) if match else int(properties.get("PROCESSORS", 1))


def as_test(entry):
    properties = properties_of(entry)
    return {"name": entry["name"],
            "command": entry.get("command", []),
            "environment": properties.get("ENVIRONMENT", []),
            "seconds": properties.get("TIMEOUT", 120),
            "labels": properties.get("LABELS", []),
            "ranks": ranks_of(entry["name"], properties),
            "skip_text": properties.get("SKIP_REGULAR_EXPRESSION", []),
            "skip_status": properties.get("SKIP_RETURN_CODE")}


def relocate(word, kind, build, source, is_first):
    """One word of a command, or one NAME=value, with the paths of the relocated tree."""
    program = os.path.basename(word)
    if is_first and program.startswith(("mpirun", "mpiexec", "orterun")):
        return "mpirun"
    if is_first and re.fullmatch(r"python[0-9.]*", program):
        return "python3"
    if word.startswith("ORTHANT_DATA="):
        return f"ORTHANT_DATA={DATA}"
    if word.startswith("ORTHANT_MPIRUN="):
        return re.sub(r"=\S*", "=mpirun", word, count=1)
    return word.replace(os.path.join(build, "bin"), f"@TREE@/libexec/{kind}").replace(source, SOURCE)


def packed(test, kind, build, source):
    command = [relocate(word, kind, build, source, i == 0) for i, word in enumerate(test["command"])]
    environment = [relocate(word, kind, build, source, False) for word in test["environment"]]
    return test | {"command": command, "environment": environment}


def tests_of(kind, build, source, is_packed):
    entries = [as_test(entry) for entry in ctest_entries(build)]
    stay = [test["name"] for test in entries if STAYS_AT_HOME.search(test["name"])]
    tests = [test for test in entries if not STAYS_AT_HOME.search(test["name"]) and "soak" not in test["labels"]]
    if is_packed:
        tests = [packed(test, kind, build, source) for test in tests]
    return {"tests": tests, "left_out": stay}


def main():
    parser = argparse.ArgumentParser(prog="test_list.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="+", metavar="KIND=BUILD", help="device=FOLDER or host=FOLDER")
    parser.add_argument("--source", default="", help="the source tree, with --packed")
    parser.add_argument("--packed", action="store_true", help="write the paths of a relocated tree")
    options = parser.parse_args()
    lists = {}
    for word in options.builds:
        kind, _, build = word.partition("=")
        lists[kind] = tests_of(kind, os.path.realpath(build), os.path.realpath(options.source), options.packed)
    json.dump(lists, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
