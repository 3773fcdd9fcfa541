# SPDX-License-Identifier: Apache-2.0
"""From a subcommand and keyword arguments to a finished process."""
import os
from typing import Any, List, Optional

from ._errors import warn
from ._metrics import PathLike
from ._options import arguments, find_program
from ._process import Completed, Launcher, execute, launch_prefix


def command_line(subcommand: str, *files: PathLike, ranks: Optional[int] = None, launcher: Launcher = None,
                 **options: Any) -> List[str]:
    """The words that start a subcommand. Raises TypeError for an option that it does not have."""
    words = arguments(subcommand, options)
    positionals = [os.fspath(file) for file in files]
    return [*launch_prefix(ranks, launcher), find_program(), *subcommand.split(), *positionals, *words]


def call(subcommand: str, *files: PathLike, ranks: Optional[int] = None, launcher: Launcher = None,
         **options: Any) -> Completed:
    """Runs a subcommand to its end. Raises UsageError if the program refuses it, and Error if it fails."""
    return execute(command_line(subcommand, *files, ranks=ranks, launcher=launcher, **options), warn=warn).check()
