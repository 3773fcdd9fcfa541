# SPDX-License-Identifier: Apache-2.0
"""Converters on the command line: python -m orthant to-csv|to-tensorboard METRICS OUTPUT."""
import argparse
import sys
from typing import List, Optional

from ._metrics import to_csv
from ._tensorboard import to_tensorboard


def main(words: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m orthant", description="Convert the metrics of trainings.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, what, output in (("to-csv", "Write one line per epoch or step to a CSV file", "CSV file to write"),
                               ("to-tensorboard", "Write event files of TensorBoard", "folder to write to")):
        command = commands.add_parser(name, help=what, description=what + ".")
        command.add_argument("metrics", help="file that `orthant train --metrics` wrote")
        command.add_argument("output", help=output)
    given = parser.parse_args(words)
    try:
        if given.command == "to-csv":
            print(f"{given.output}: {to_csv(given.metrics, given.output)} lines")
        else:
            print("\n".join(to_tensorboard(given.metrics, given.output)))
    except (OSError, ValueError) as error:
        print(f"orthant: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
