#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Trains on batches of clusters in two data groups of one rank each, finishes on the full graph, and evaluates the weights.
# LAUNCH stands before the number of ranks, for instance LAUNCH="srun -n".
set -euo pipefail

launch=${LAUNCH:-mpirun --oversubscribe -n}

orthant generate --kind sbm --vertices 3000 --edges 28500 --features 3 --classes 20 --seed 1 -o blocks
orthant partition --input blocks --clusters 64 -o blocks.h5
$launch 2 orthant train --graph blocks.h5 --mode minibatch --sampler clusters --batch 375 --grid 2x1x1x1 --layers 2 --hidden 64 \
  --epochs 60 --finish-full 10 --save-weights w.h5
$launch 2 orthant evaluate --graph blocks.h5 --weights w-best.h5
