#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Points of a scaling study on any Slurm cluster, one rank per task.
#
#   orthant study submit study.toml --machine generic
#
# submits it as an array with a list of points, of which each task runs its own; nodes, ranks per node, array and log are on the
# command line of sbatch, and so are the `options` of the study file.
#SBATCH --cpus-per-task=1
#SBATCH --time=00:30:00
#SBATCH --requeue
#SBATCH --open-mode=append
set -uo pipefail

export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1} OMP_PLACES=cores OMP_PROC_BIND=close

# set this: --mpi=pmix with Open MPI of a distribution; nothing with Cray MPICH
export ORTHANT_LAUNCH="${ORTHANT_LAUNCH:-srun --mpi=${ORTHANT_SRUN_MPI:-pmix} --cpu-bind=cores -n}"

list=$1
mapfile -t points < "$list"
exec bash "${points[$SLURM_ARRAY_TASK_ID]}"
