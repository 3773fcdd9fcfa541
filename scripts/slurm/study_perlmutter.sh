#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Points of a scaling study on Perlmutter's GPU nodes (4 NVIDIA A100 per node, Slingshot).
#
#   orthant study submit study.toml --machine perlmutter
#
# submits it as an array with a list of points, of which each task runs its own; nodes, ranks per node, array and log are on the
# command line of sbatch, and so are the `options` of the study file.
#SBATCH --account=m0000_g
#SBATCH --constraint=gpu
#SBATCH --qos=regular
#SBATCH --cpus-per-task=32
#SBATCH --gpus-per-node=4
#SBATCH --gpu-bind=none
#SBATCH --time=00:30:00
#SBATCH --requeue
#SBATCH --open-mode=append
set -uo pipefail

# The account is set in the study file: options = ["--account=.."].
module load PrgEnv-gnu cudatoolkit craype-accel-nvidia80 cray-hdf5-parallel nccl

# Every rank sees all four devices and takes the one of its number within the node, so that NCCL can use NVLink.
export SLURM_CPU_BIND=cores
export OMP_NUM_THREADS=16 OMP_PLACES=cores OMP_PROC_BIND=close
export MPICH_GPU_SUPPORT_ENABLED=1
# NCCL over Slingshot: the module `nccl` brings the libfabric plug-in.
export NCCL_NET="AWS Libfabric" NCCL_NET_GDR_LEVEL=PHB NCCL_CROSS_NIC=1 NCCL_SOCKET_IFNAME=hsn
export FI_CXI_DISABLE_HOST_REGISTER=1 FI_MR_CACHE_MONITOR=userfaultfd FI_CXI_DEFAULT_CQ_SIZE=131072
export ORTHANT_LAUNCH="${ORTHANT_LAUNCH:-srun -n}"

list=$1
mapfile -t points < "$list"
exec bash "${points[$SLURM_ARRAY_TASK_ID]}"
