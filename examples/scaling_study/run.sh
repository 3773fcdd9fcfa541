#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the study of scaling.toml on this machine and writes its tables, its figure and its page.
# LAUNCH stands before the number of ranks, for instance LAUNCH="srun -n".
set -euo pipefail

launch=${LAUNCH:-mpirun --oversubscribe -n}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

cp "$here/scaling.toml" .
orthant study submit scaling.toml --here --launcher "$launch"
orthant study collect scaling.toml
orthant study report scaling.toml
