# SPDX-License-Identifier: Apache-2.0
"""Options of orthant in the pages are in its help, and those in its help are in docs/command_line.md."""

from __future__ import annotations

import os
import re
import subprocess

from .page import COMMENT

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9]*(?:-[a-z0-9]+)*(?![\w-])")
FOREIGN = re.compile(r"<!--\s*options of other programs:(.*?)-->", re.S)
NAME = re.compile(r"^ {2}([a-z][a-z-]*(?: [a-z][a-z-]*)?)(?: {1,}[A-Z].*| {2,}.*|)$", re.M)
OF_HELP = re.compile(r"^ {2,}(-\S+(?: \S+)*)", re.M)
# These accept the command line of another command; their help does not list the options without effect.
ACCEPTS = {"plan": "train", "bench epoch": "train", "evaluate": "train", "plan-lm": "train-lm", "evaluate-lm": "train-lm"}
OF_ALL = {"--help", "--version"}
# Mentioned without their program: of mpirun, srun, CMake and ctest.
OF_OTHERS = {"--oversubscribe", "--bind-to", "--map-by", "--mpi", "--nodes", "--ntasks", "--preset", "--target", "--parallel"}
LAUNCHERS = ("mpirun", "mpiexec", "srun")


def help_of(program, words):
    done = subprocess.run([program, *words, "--help"], capture_output=True, text=True, timeout=60, check=False,
                          stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError(f"'orthant {' '.join([*words, '--help'])}' ends with status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def commands_in(text):
    """The names below `Commands:`."""
    part = text.split("Commands:\n", 1)[1].split("\n\n")[0] if "Commands:\n" in text else ""
    return NAME.findall(part)


class Help:
    """Options of every subcommand, read once from its help."""

    def __init__(self, program):
        self.options = {}
        for name in commands_in(help_of(program, [])):
            self._read(program, name.split())
        if not self.options:
            raise RuntimeError(f"the help of {program} lists no commands")
        self.groups = {name.split()[0] for name in self.options if " " in name}

    def _read(self, program, words):
        text = help_of(program, words)
        inner = commands_in(text)
        for name in inner:
            self._read(program, [words[0], name.split()[-1]])
        if not inner:
            # Descriptions, two spaces behind, may name options of other commands.
            self.options[" ".join(words)] = {name for line in OF_HELP.findall(text) for name in OPTION.findall(line)}

    def command_of(self, words):
        """The subcommand that begins `words`, if any."""
        for count in (2, 1):
            if len(words) >= count and " ".join(words[:count]) in self.options:
                return " ".join(words[:count])
        return None

    def accepts(self, command, option):
        known = self.options[command] | self.options.get(ACCEPTS.get(command), set()) | OF_ALL
        return option in known or option.startswith("--kokkos-")

    def anywhere(self, option):
        return any(self.accepts(command, option) for command in self.options)


def commands_of(text):
    """(offset of the line, words behind `orthant`) of every call in the lines of a block or in inline code."""
    lines = text.split("\n")
    place = 0
    while place < len(lines):
        begin, whole = place, lines[place]
        while whole.endswith("\\") and place + 1 < len(lines):
            place += 1
            whole = whole[:-1] + " " + lines[place]
        place += 1
        whole = re.sub(r"(?:^|(?<=\s))#.*", "", whole)
        for call in re.split(r"&&|\|\||[;|()]|(?<!\\)\"", whole):
            words = call.split()
            names = [number for number, word in enumerate(words) if word.rsplit("/", 1)[-1] == "orthant"]
            if names and all("=" in word or word.startswith("-") or word[0].isdigit() or word in LAUNCHERS or word in ("time", "!", "$")
                             for word in words[:names[0]]):
                yield begin, words[names[0] + 1:]


def of_scripts(root):
    """Options that scripts of the repository take."""
    found = set()
    for folder in ("scripts", "datasets", os.path.join("tests", "bench"), "cmake"):
        for place, _, names in os.walk(os.path.join(root, folder)):
            for name in names:
                if name.endswith((".sh", ".py")) and "check_docs" not in place:
                    with open(os.path.join(place, name), encoding="utf-8", errors="replace") as file:
                        found |= set(OPTION.findall(file.read()))
    return found


def check(page, help_, scripts=frozenset()):
    """Errors, and how many options were looked up."""
    errors, count = [], 0
    foreign = {option for mark in FOREIGN.findall(page.prose) for option in OPTION.findall(mark)} | OF_OTHERS | scripts

    def look_up(line, words, is_call):
        nonlocal count
        command = help_.command_of(words)
        options = OPTION.findall(" ".join(words))
        if command is None:
            if words and is_call and re.fullmatch(r"[a-z][a-z-]*", words[0]) and words[0] not in help_.groups | {"help"}:
                errors.append(page.error(line, f"orthant has no command '{words[0]}'"))
            return
        count += len(options)
        errors.extend(page.error(line, f"'orthant {command} --help' has no {option}")
                      for option in options if not help_.accepts(command, option))

    for block in page.blocks:
        if block.language in ("", "sh", "bash", "console", "text", "python"):
            for offset, words in commands_of("\n".join(block.lines)):
                look_up(block.line + 1 + offset, words, block.is_shell)
    for line, code in page.code_spans():
        calls = [words for _, words in commands_of(code)]
        words = code.split()
        if calls:
            for call in calls:
                look_up(line, call, any(word.startswith("-") for word in call))
        elif help_.command_of(words):
            look_up(line, words, True)
        elif code.startswith("--"):
            for option in OPTION.findall(code):
                count += 1
                if option not in foreign and not help_.anywhere(option):
                    errors.append(page.error(line, f"no command of orthant has an option {option}"))
    return errors, count


def check_listing(page, help_):
    """Every option of the help is in `page`, docs/command_line.md."""
    written = set(OPTION.findall(COMMENT.sub("", "\n".join(page.lines))))
    errors = []
    for command, options in sorted(help_.options.items()):
        errors.extend(page.error(1, f"the page lacks {option} of 'orthant {command} --help'") for option in sorted(options - written))
    return errors, sum(len(options) for options in help_.options.values())
