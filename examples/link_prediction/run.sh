#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Holds out edges, trains embeddings of the vertices to predict links, writes them to a .npy file, and evaluates them.
# LAUNCH stands before the number of ranks, for instance LAUNCH="srun -n".
set -euo pipefail

launch=${LAUNCH:-mpirun --oversubscribe -n}

orthant generate --kind sbm --vertices 2000 --edges 20000 --features 32 --classes 20 --seed 1 -o graph
orthant partition --input graph --edge-split 0.05,0.1 -o links.h5
$launch 2 orthant train --graph links.h5 --task links --grid 1x1x1x2 --layers 2 --hidden 64 --embedding 32 --dropout 0 \
  --epochs 60 --eval-every 20 --save-weights w.h5
$launch 2 orthant evaluate --graph links.h5 --weights w-best.h5 --embeddings 1 --predictions embeddings.npy
