# SPDX-License-Identifier: Apache-2.0
"""Where the programs, tests and data lie: in a relocated tree, or in two build trees."""
import json
import os
import pathlib

import machine
import test_list


class Missing(Exception):
    """Something that the check cannot do without. Becomes one line and status 2."""


class Place:
    """What both have: commands and environments of jobs on the device and on the host."""

    def __init__(self, source, work, is_rehearsal):
        self.source = source
        self.work = work
        self.device_kind = "host" if is_rehearsal else "device"
        self.libraries = []  # folders for LD_LIBRARY_PATH of what runs on the device
        self._lists = {}

    def bin(self, kind):
        raise NotImplementedError

    def tests(self):
        return self._lists[self.device_kind]["tests"]

    def left_out(self):
        return self._lists[self.device_kind]["left_out"]

    def orthant(self, kind):
        return self.bin(self.device_kind if kind == "device" else kind) / "orthant"

    def program(self, name):
        return self.bin(self.device_kind) / name

    def on(self, kind, ranks, *arguments):
        """The command of a job of orthant."""
        return [*self.mpirun(), str(ranks), self.orthant(kind), *arguments]

    def mpirun(self):
        has_open_mpi = "Open MPI" in machine.output_of("mpirun", "--version")
        return ["mpirun", "--oversubscribe", "--bind-to", "none", "-n"] if has_open_mpi else ["mpirun", "-n"]

    def environment(self, kind="device"):
        """Of one job; CUDA's libraries are shown to what needs them alone, lest PyTorch gets others than its own."""
        variables = dict(os.environ)
        variables |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "GTEST_COLOR": "no",
                      "OMPI_MCA_mpi_yield_when_idle": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
                      "PYTHONDONTWRITEBYTECODE": "1"}
        if kind == "device" and self.libraries:
            variables["LD_LIBRARY_PATH"] = os.pathsep.join(self.libraries)
        return variables

    def wrapper(self):
        """A script that starts orthant on the device with CUDA's libraries, for callers that set no environment."""
        path = self.work / "orthant-device"
        lines = ["#!/bin/sh"]
        if self.libraries:
            lines.append(f'LD_LIBRARY_PATH="{os.pathsep.join(self.libraries)}" exec "{self.orthant("device")}" "$@"')
        else:
            lines.append(f'exec "{self.orthant("device")}" "$@"')
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o755)
        return path


class Tree(Place):
    """What make_gpu_tree.sh packed."""

    def __init__(self, tree, work, is_rehearsal):
        super().__init__(tree / "share/orthant/source", work, is_rehearsal)
        self._tree = tree
        self._share = tree / "share/orthant"
        if not (self._share / "tests.json").is_file():
            raise Missing(f"{tree} is no whole tree of make_gpu_tree.sh")
        self._lists = json.loads((self._share / "tests.json").read_text())
        if self.device_kind not in self._lists:
            raise Missing(f"{tree} holds no programs for the {self.device_kind}")
        packed = dict(line.split(" ", 1) for line in (self._share / "packed.txt").read_text().splitlines())
        self.commit = packed["commit"]
        if machine.libc_version() < machine.numbers_of(packed["glibc"]):
            raise Missing(f"the tree needs glibc {packed['glibc']} or newer")
        os.environ["PATH"] = f"{tree / 'bin'}{os.pathsep}{os.environ['PATH']}"
        for line in (self._share / "environment.txt").read_text().split():
            name, _, value = line.partition("=")
            os.environ[name] = self.unpacked(value)
        os.environ["ORTHANT_DATA"] = str(self.data())
        if not is_rehearsal:
            self._find_libraries()

    def _find_libraries(self):
        names = (self._share / "machine-libraries.txt").read_text().split()
        found = machine.find_libraries(names)
        absent = [name for name in names if name not in found]
        if absent:
            raise Missing(f"not found on this machine: {', '.join(absent)}; set LD_LIBRARY_PATH to where they are")
        self.libraries = list(dict.fromkeys(os.path.dirname(path) for path in found.values() if path))

    def unpacked(self, word):
        return word.replace("@TREE@", str(self._tree))

    def bin(self, kind):
        return self._tree / "libexec" / kind

    def data(self):
        return self._share / "data"

    def command_of(self, test):
        return [self.unpacked(word) for word in test["command"]]

    def environment_of(self, test):
        return self.environment() | dict(self.unpacked(word).split("=", 1) for word in test["environment"])


class Builds(Place):
    """Two build trees below `work`, made by the first step."""

    def __init__(self, source, work, is_rehearsal, commit):
        super().__init__(source, work, is_rehearsal)
        self.commit = commit

    def read_tests(self):
        kind = self.device_kind
        self._lists = {kind: test_list.tests_of(kind, str(self.work / kind), str(self.source), False)}

    def bin(self, kind):
        return self.work / kind / "bin"

    def data(self):
        given = os.environ.get("ORTHANT_DATA")
        return pathlib.Path(given) if given else self.source.parent / "shared"

    def command_of(self, test):
        return test["command"]

    def environment_of(self, test):
        return self.environment() | dict(word.split("=", 1) for word in test["environment"])
