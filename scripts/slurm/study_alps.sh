#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Points of a scaling study on Alps (CSCS; 4 NVIDIA GH200 per node, Slingshot).
#
#   orthant study submit study.toml --machine alps
#
# submits it as an array with a list of points, of which each task runs its own; nodes, ranks per node, array and log are on the
# command line of sbatch, and so are the `options` of the study file.
#SBATCH --account=g000
#SBATCH --partition=normal
#SBATCH --cpus-per-task=72
#SBATCH --gpus-per-node=4
#SBATCH --exclusive
#SBATCH --time=00:30:00
#SBATCH --requeue
#SBATCH --open-mode=append
set -uo pipefail

# The account is set in the study file: options = ["--account=.."], and the user environment by --uenv and --view there:
# options = ["--uenv=..", "--view=.."].

# Every rank sees all four devices and takes the one of its number within the node, so that NCCL can use NVLink.
export OMP_NUM_THREADS=72 OMP_PLACES=cores OMP_PROC_BIND=close
export MPICH_GPU_SUPPORT_ENABLED=1
# NCCL over Slingshot: the user environment brings the libfabric plug-in.
export NCCL_NET="AWS Libfabric" NCCL_NET_GDR_LEVEL=PHB NCCL_CROSS_NIC=1 NCCL_PROTO=^LL128
export FI_CXI_DEFAULT_CQ_SIZE=131072 FI_CXI_DEFAULT_TX_SIZE=32768 FI_CXI_DISABLE_HOST_REGISTER=1
export FI_CXI_RX_MATCH_MODE=software FI_MR_CACHE_MONITOR=userfaultfd
export ORTHANT_LAUNCH="${ORTHANT_LAUNCH:-srun --cpu-bind=cores -n}"

list=$1
mapfile -t points < "$list"
exec bash "${points[$SLURM_ARRAY_TASK_ID]}"
