# SPDX-License-Identifier: Apache-2.0
"""peak_memory.py FILE PROGRAM ARGUMENT ..: runs the program and appends its peak resident bytes, a line, to FILE.

One of these stands before every rank, so FILE has a line a rank. Leaves with the program's status.
"""

import os
import resource
import subprocess
import sys


def main() -> int:
    if len(sys.argv) < 3:
        sys.exit("usage: peak_memory.py FILE PROGRAM ARGUMENT ..")
    status = subprocess.run(sys.argv[2:], check=False).returncode
    peak_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(file, f"{peak_bytes}\n".encode())  # one write: the lines of ranks do not mix
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
