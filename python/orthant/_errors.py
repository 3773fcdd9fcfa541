# SPDX-License-Identifier: Apache-2.0
"""Exceptions for the ways in which the program can fail, and warnings."""
import os
import sys
import types
import warnings
from typing import Optional

_FOLDER = os.path.dirname(os.path.abspath(__file__))


class Error(RuntimeError):
    """The program failed. The message is its error line; `status` is its exit status, `log` all of its stderr."""

    def __init__(self, message: str, status: int = 1, log: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.log = log


class UsageError(Error, ValueError):
    """The program refused its options or its input (exit status 2)."""


def error_line(log: str) -> str:
    """The line of `log` that says what was wrong, without the program's prefix and without the launcher's frame."""
    lines = [line.strip() for line in log.splitlines() if line.strip().strip("-")]
    marked = [line for line in lines if line.startswith("orthant: error: ")]
    if marked:
        return marked[-1][len("orthant: error: "):]
    marked = [line for line in lines if line.startswith("orthant: ")]
    if marked:
        return marked[-1][len("orthant: "):]
    return " ".join(lines[:3]) if lines else "the program printed no message"


def warn(message: str) -> None:
    """Warns at the line outside of the package that called it."""
    frame: Optional[types.FrameType] = sys._getframe()
    level = 1
    while frame is not None and os.path.dirname(os.path.abspath(frame.f_code.co_filename)) == _FOLDER:
        frame = frame.f_back
        level += 1
    warnings.warn(message, RuntimeWarning, stacklevel=level)
