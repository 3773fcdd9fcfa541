#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Trains on Frontier (4 AMD MI250X per node, which are 8 devices; Slingshot), and goes on after the time limit.
#
#   sbatch --nodes 16 scripts/slurm/frontier.sh --graph products.h5 --grid 1x8x4x4 --epochs 1000
#
# What follows the script's name goes to `orthant train`.
#SBATCH --account=ABC000
#SBATCH --partition=batch
#SBATCH --job-name=orthant
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --gpus-per-task=1
#SBATCH --gpu-bind=closest
#SBATCH --time=02:00:00
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
# (set this: the account)
set -uo pipefail

module load PrgEnv-gnu craype-accel-amd-gfx90a rocm cray-hdf5-parallel
# set this: where Orthant is installed, and where the libfabric plug-in of RCCL (aws-ofi-rccl) is
export PATH=$HOME/orthant/bin:$PATH
export LD_LIBRARY_PATH=$HOME/aws-ofi-rccl/lib:${CRAY_LD_LIBRARY_PATH:-}:${LD_LIBRARY_PATH:-}
checkpoints=${ORTHANT_CHECKPOINTS:-$MEMBERWORK/${SLURM_JOB_ACCOUNT}/${SLURM_JOB_NAME}.checkpoints}

export OMP_NUM_THREADS=7 OMP_PLACES=cores OMP_PROC_BIND=close
export MPICH_GPU_SUPPORT_ENABLED=1
# RCCL over Slingshot
export NCCL_SOCKET_IFNAME=hsn0 NCCL_NET_GDR_LEVEL=3 NCCL_CROSS_NIC=1
export FI_MR_CACHE_MONITOR=userfaultfd FI_CXI_DEFAULT_CQ_SIZE=131072 FI_CXI_DEFAULT_TX_SIZE=2048

srun --cpu-bind=cores orthant train --checkpoint "$checkpoints" --resume auto "$@"
status=$?

if [ "$status" -eq 75 ]; then
  echo "time is nearly over: a checkpoint is written, and the job goes back into the queue"
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
