#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Trains a graph convolutional network on the full graph of the karate club, on four ranks of the grid 1x2x2x1, and evaluates it.
# LAUNCH stands before the number of ranks, for instance LAUNCH="srun -n".
set -euo pipefail

launch=${LAUNCH:-mpirun --oversubscribe -n}
root=${ORTHANT_ROOT:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}

"$root/datasets/fetch.sh" karate
$launch 4 orthant train --graph karate.h5 --mode full --grid 1x2x2x1 --layers 2 --hidden 16 --dropout 0 --epochs 50 \
  --save-weights w.h5 --metrics run.jsonl
$launch 4 orthant evaluate --graph karate.h5 --weights w-best.h5 --grid 1x2x2x1
