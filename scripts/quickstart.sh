#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# From a fresh clone to Orthant at work on four ranks: bootstraps this machine, builds the program, and trains graph
# convolutional networks over a 1x2x2x1 grid on two real graphs that lie in datasets/: Zachary's karate club, and 519,000
# edges between workers of a crowdsourcing platform. Both trainings take seconds.
#
# ORTHANT_BUILD_DIR   the build tree (default: build in the source tree)
# ORTHANT_JOBS        compilations at a time (default: the number of cores)
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${ORTHANT_BUILD_DIR:-$repository/build}

"$repository/scripts/bootstrap.sh"
# Sources of some folders are compiled together: a third of the seconds of a first build, more after a change.
options=()
if [ ! -e "$build/CMakeCache.txt" ]; then options=(-G Ninja -DCMAKE_UNITY_BUILD=ON); fi
cmake -S "$repository" -B "$build" "${options[@]}"
cmake --build "$build" --parallel "${ORTHANT_JOBS:-$(nproc)}" --target orthant

# Open MPI refuses to start as root, or more ranks than there are cores, unless it is told to; a waiting rank should
# give its core away where ranks share one.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1}
launch=(mpirun -n 4)
if mpirun --version 2>&1 | grep -q 'Open MPI'; then launch=(mpirun --oversubscribe --bind-to none -n 4); fi

run() {
  printf '\n$ %s\n' "$*"
  "$@"
}
for name in karate tolokers; do
  ORTHANT=$build/bin/orthant run "$repository/datasets/fetch.sh" "$name" --output "$build/datasets" --force
done
run "${launch[@]}" "$build/bin/orthant" train --graph "$build/datasets/karate.h5" \
  --grid 1x2x2x1 --layers 2 --hidden 16 --epochs 50 --log-every 10
run "${launch[@]}" "$build/bin/orthant" train --graph "$build/datasets/tolokers.h5" \
  --grid 1x2x2x1 --layers 3 --hidden 64 --norm rms --residual --input-projection --dropout 0 --lr 0.003 --epochs 100 --log-every 10 --roc-auc
