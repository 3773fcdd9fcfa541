#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Trains on Tuolumne (4 AMD MI300A per node, Slingshot) under Flux, and goes on after the time limit.
#
#   flux batch scripts/slurm/tuolumne.sh --graph products.h5 --grid 1x4x4x4 --epochs 1000
#
# What follows the script's name goes to `orthant train`. Flux has no requeue: the script submits itself again.
#flux: --nodes=16
#flux: --exclusive
#flux: --queue=pbatch
#flux: --bank=guests
#flux: --job-name=orthant
#flux: --time-limit=2h
#flux: --output=orthant-{{id}}.log
# (set this: the number of nodes and the bank)
set -uo pipefail

module load rocm cray-hdf5-parallel
# set this: where Orthant is installed, and where checkpoints go
export PATH=$HOME/orthant/bin:$PATH
checkpoints=${ORTHANT_CHECKPOINTS:-/p/lustre5/$USER/orthant.checkpoints}

export OMP_NUM_THREADS=24 OMP_PLACES=cores OMP_PROC_BIND=close
export MPICH_GPU_SUPPORT_ENABLED=1 HSA_XNACK=1
# RCCL over Slingshot
export NCCL_SOCKET_IFNAME=hsn0 NCCL_NET_GDR_LEVEL=3 NCCL_CROSS_NIC=1
export FI_MR_CACHE_MONITOR=userfaultfd FI_CXI_DEFAULT_CQ_SIZE=131072

# Orthant looks at the clock itself, and leaves the time that a checkpoint takes.
nodes=$(flux resource list --states=up --no-header --format='{nnodes}')
seconds=$(flux job timeleft)
flux run --nodes="$nodes" --tasks-per-node=4 --gpus-per-task=1 --exclusive \
  orthant train --checkpoint "$checkpoints" --resume auto --max-walltime "${seconds}s" "$@"
status=$?

if [ "$status" -eq 75 ]; then
  echo "time is nearly over: a checkpoint is written, and the job is submitted again"
  flux --parent batch "$0" "$@"
fi
exit "$status"
