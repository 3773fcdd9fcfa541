#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Points of a scaling study on Tuolumne (4 AMD MI300A per node, Slingshot) under Flux.
#
#   orthant study submit study.toml --machine tuolumne
#
# submits it with a list of points, which it runs one after the other; nodes and log are on the command line of flux, and so are
# the `options` of the study file.
#flux: --exclusive
#flux: --queue=pbatch
#flux: --bank=guests
#flux: --time-limit=2h
# (the bank is set in the study file: options = ["--bank=.."])
set -uo pipefail

module load rocm cray-hdf5-parallel

export OMP_NUM_THREADS=24 OMP_PLACES=cores OMP_PROC_BIND=close
export MPICH_GPU_SUPPORT_ENABLED=1 HSA_XNACK=1
# RCCL over Slingshot
export NCCL_SOCKET_IFNAME=hsn0 NCCL_NET_GDR_LEVEL=3 NCCL_CROSS_NIC=1
export FI_MR_CACHE_MONITOR=userfaultfd FI_CXI_DEFAULT_CQ_SIZE=131072

export ORTHANT_LAUNCH="${ORTHANT_LAUNCH:-flux run --cores-per-task=24 --gpus-per-task=1 -n}"

list=$1
status=0
while read -r point; do
  bash "$point" < /dev/null || status=$?
done < "$list"
exit "$status"
