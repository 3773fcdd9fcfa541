#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Trains a small GPT on the characters of the text of the licence, on two ranks, draws the loss, and evaluates the best weights.
# LAUNCH stands before the number of ranks, for instance LAUNCH="srun -n".
set -euo pipefail

launch=${LAUNCH:-mpirun --oversubscribe -n}
root=${ORTHANT_ROOT:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}

orthant tokenize --input "$root/LICENSE" --tokenizer char -o text.h5
$launch 2 orthant train-lm --tokens text.h5 --grid 2x1x1x1 --layers 2 --hidden 64 --heads 4 --sequence 64 --global-batch 16 \
  --steps 80 --lr 0.003 --warmup-steps 10 --eval-every 40 --save-weights lm.h5 --metrics lm.jsonl
orthant plot lm.jsonl -o lm.svg
$launch 2 orthant evaluate-lm --tokens text.h5 --weights lm-best.h5 --grid 2x1x1x1
