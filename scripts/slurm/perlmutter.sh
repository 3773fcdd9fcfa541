#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Trains on Perlmutter's GPU nodes (4 NVIDIA A100 per node, Slingshot), and goes on after the time limit.
#
#   sbatch --nodes 16 scripts/slurm/perlmutter.sh --graph products.h5 --grid 1x4x4x4 --epochs 1000
#
# What follows the script's name goes to `orthant train`.
#SBATCH --account=m0000_g
#SBATCH --constraint=gpu
#SBATCH --qos=regular
#SBATCH --job-name=orthant
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --gpus-per-node=4
#SBATCH --gpu-bind=none
#SBATCH --time=02:00:00
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
# (set this: the account)
set -uo pipefail

module load PrgEnv-gnu cudatoolkit craype-accel-nvidia80 cray-hdf5-parallel nccl
# set this: where Orthant is installed
export PATH=$HOME/orthant/bin:$PATH
checkpoints=${ORTHANT_CHECKPOINTS:-$SCRATCH/${SLURM_JOB_NAME}.checkpoints}

# Every rank sees all four devices and takes the one of its number within the node, so that NCCL can use NVLink.
export SLURM_CPU_BIND=cores
export OMP_NUM_THREADS=16 OMP_PLACES=cores OMP_PROC_BIND=close
export MPICH_GPU_SUPPORT_ENABLED=1
# NCCL over Slingshot: the module `nccl` brings the libfabric plug-in.
export NCCL_NET="AWS Libfabric" NCCL_NET_GDR_LEVEL=PHB NCCL_CROSS_NIC=1 NCCL_SOCKET_IFNAME=hsn
export FI_CXI_DISABLE_HOST_REGISTER=1 FI_MR_CACHE_MONITOR=userfaultfd FI_CXI_DEFAULT_CQ_SIZE=131072

srun orthant train --checkpoint "$checkpoints" --resume auto "$@"
status=$?

if [ "$status" -eq 75 ]; then
  echo "time is nearly over: a checkpoint is written, and the job goes back into the queue"
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
