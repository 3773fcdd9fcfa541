#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each source compiles alone, and with it the header of its name, which it includes first: check_sources.py BUILD_DIR

In a build tree with CMAKE_UNITY_BUILD sources are compiled several at a time, and one may use what another has included or
declared. There each is parsed alone, with the flags of its group. In other trees there is nothing to do.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys


def commands_alone(build):
    """(source, command, folder) for each source of a group."""
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        group = pathlib.Path(entry["file"])
        if group.parent.name != "Unity":
            continue
        command = shlex.split(entry["command"])
        output = command.index("-o")
        flags = command[:output] + command[output + 2:]
        for source in re.findall(r'#include "(.*\.cpp)"', group.read_text(encoding="utf-8")):
            yield source, [source if word == entry["file"] else word for word in flags] + ["-fsyntax-only"], entry["directory"]


def fault_of(job):
    source, command, folder = job
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return f"{source} does not compile alone:\n{done.stderr}" if done.returncode != 0 else ""


def main():
    jobs = list(commands_alone(pathlib.Path(sys.argv[1])))
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        faults = [fault for fault in pool.map(fault_of, jobs) if fault]
    print("\n".join(faults))
    print(f"{len(jobs)} sources checked, {len(faults)} problems")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
