#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Trains on any Slurm cluster, one rank per task, and goes on after the time limit.
#
#   sbatch --nodes 4 scripts/slurm/generic.sh --graph products.h5 --grid 1x4x1x4 --epochs 1000
#
# What follows the script's name goes to `orthant train`. ORTHANT names the program, ORTHANT_CHECKPOINTS the folder of
# checkpoints; the default is a folder named after the job, beside where it was submitted.
#SBATCH --job-name=orthant
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=1
#SBATCH --gpus-per-node=4
#SBATCH --time=02:00:00
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
# (set this: without devices, remove the line with --gpus-per-node)
set -uo pipefail

checkpoints=${ORTHANT_CHECKPOINTS:-$SLURM_SUBMIT_DIR/${SLURM_JOB_NAME}.checkpoints}
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1} OMP_PLACES=cores OMP_PROC_BIND=close

# set this: --mpi=pmix with Open MPI of a distribution; nothing with Cray MPICH
srun --mpi="${ORTHANT_SRUN_MPI:-pmix}" --cpu-bind=cores "${ORTHANT:-orthant}" train --checkpoint "$checkpoints" --resume auto "$@"
status=$?

if [ "$status" -eq 75 ]; then
  echo "time is nearly over: a checkpoint is written, and the job goes back into the queue"
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
