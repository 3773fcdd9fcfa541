# SPDX-License-Identifier: Apache-2.0
"""Options of the program's subcommands, read from the output of `orthant SUBCOMMAND --help`."""
import difflib
import functools
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np

from ._errors import Error


@dataclass(frozen=True)
class Option:
    """One option of a subcommand, as `--help` shows it."""

    name: str  # without dashes
    type: Optional[str]  # INT, FLOAT or TEXT; None for a flag
    default: Optional[str]
    takes_list: bool
    has_negative: bool  # there is a flag --no-NAME
    help: str


_LINE = re.compile(
    r"^  (?:-\w,)?--(?P<name>[\w-]+)(?P<negative>,--no-[\w-]+(?:\{\w+\})?)?"
    r"(?: (?P<type>INT|UINT|FLOAT|TEXT)(?:=(?P<default>\S+))?)?(?P<list> \.\.\.)?(?:\s+(?P<help>.*))?$")


def find_program() -> str:
    """Path of the program: the environment variable ORTHANT, or `orthant` on the PATH."""
    wanted = os.environ.get("ORTHANT") or "orthant"
    found = shutil.which(wanted)
    if found is None:
        raise FileNotFoundError(f"cannot find the program '{wanted}': add the folder of the executable orthant to PATH, "
                                "or set the environment variable ORTHANT to its path")
    return found


def options(subcommand: str) -> Dict[str, Option]:
    """Options of a subcommand ("train", "bench epoch") by name, without dashes."""
    program = find_program()
    state = os.stat(program)
    return dict(_read_options(program, state.st_mtime_ns, state.st_size, subcommand))


@functools.lru_cache(maxsize=None)
def _read_options(program: str, _time: int, _size: int, subcommand: str) -> Tuple[Tuple[str, Option], ...]:
    """The time and size of the program are a part of the key, so that a new version is asked again."""
    result = subprocess.run([program, *subcommand.split(), "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, check=False)
    if result.returncode != 0:
        raise Error(f"`orthant {subcommand} --help` failed: {result.stderr.strip()}", result.returncode, result.stderr)
    return tuple((option.name, option) for option in parse_help(result.stdout))


def parse_help(text: str) -> List[Option]:
    """The options in a `--help` text."""
    found = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match and match["name"] != "help":
            found.append(Option(match["name"], match["type"], match["default"], bool(match["list"]),
                                bool(match["negative"]), match["help"] or ""))
    return found


def arguments(subcommand: str, given: Mapping[str, Any]) -> List[str]:
    """Command-line arguments for keyword arguments, such as lr_schedule="cosine" or bias=False.

    Raises TypeError, with the nearest name, if the subcommand has no such option. None leaves an option out.
    """
    known = options(subcommand)
    words: List[str] = []
    for keyword, value in given.items():
        name = keyword.rstrip("_").replace("_", "-")
        if keyword.startswith("kokkos_"):
            words.append(f"--{name}={value}")
            continue
        option = known.get(name)
        if option is None:
            raise TypeError(_unknown(subcommand, keyword, list(known)))
        if value is not None:
            words += _words(subcommand, keyword, option, value)
    return words


def _words(subcommand: str, keyword: str, option: Option, value: Any) -> List[str]:
    if isinstance(value, np.bool_):
        value = bool(value)
    if option.type is None:
        if isinstance(value, (bool, int)) and value in (0, 1):
            return [f"--{option.name}"] if value else [f"--no-{option.name}"] if option.has_negative else []
        raise TypeError(f"{subcommand}: {keyword} is True or False, not {value!r}")
    if isinstance(value, bool):
        if option.type != "TEXT":
            raise TypeError(f"{subcommand}: {keyword} takes a number, not {value}")
        return [f"--{option.name}={'on' if value else 'off'}"]
    if isinstance(value, (list, tuple)):
        value = ",".join(str(item) for item in value)
    text = os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    return [f"--{option.name}={text}"]


def _unknown(subcommand: str, keyword: str, known: List[str]) -> str:
    keywords = [name.replace("-", "_") for name in known]
    near = difflib.get_close_matches(keyword, keywords, n=1, cutoff=0.5)
    advice = f"; did you mean '{near[0]}'?" if near else f"; orthant.options('{subcommand}') lists them"
    return f"{subcommand} has no option '{keyword}'{advice}"
