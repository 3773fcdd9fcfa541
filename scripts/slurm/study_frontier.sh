#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Points of a scaling study on Frontier (4 AMD MI250X per node, which are 8 devices; Slingshot).
#
#   orthant study submit study.toml --machine frontier
#
# submits it as an array with a list of points, of which each task runs its own; nodes, ranks per node, array and log are on the
# command line of sbatch, and so are the `options` of the study file.
#SBATCH --account=ABC000
#SBATCH --partition=batch
#SBATCH --cpus-per-task=7
#SBATCH --gpus-per-task=1
#SBATCH --gpu-bind=closest
#SBATCH --time=00:30:00
#SBATCH --requeue
#SBATCH --open-mode=append
set -uo pipefail

# The account is set in the study file: options = ["--account=.."].
module load PrgEnv-gnu craype-accel-amd-gfx90a rocm cray-hdf5-parallel
# set this: where the libfabric plug-in of RCCL (aws-ofi-rccl) is
export LD_LIBRARY_PATH=$HOME/aws-ofi-rccl/lib:${CRAY_LD_LIBRARY_PATH:-}:${LD_LIBRARY_PATH:-}

export OMP_NUM_THREADS=7 OMP_PLACES=cores OMP_PROC_BIND=close
export MPICH_GPU_SUPPORT_ENABLED=1
# RCCL over Slingshot
export NCCL_SOCKET_IFNAME=hsn0 NCCL_NET_GDR_LEVEL=3 NCCL_CROSS_NIC=1
export FI_MR_CACHE_MONITOR=userfaultfd FI_CXI_DEFAULT_CQ_SIZE=131072 FI_CXI_DEFAULT_TX_SIZE=2048
export ORTHANT_LAUNCH="${ORTHANT_LAUNCH:-srun --cpu-bind=cores -n}"

list=$1
mapfile -t points < "$list"
exec bash "${points[$SLURM_ARRAY_TASK_ID]}"
