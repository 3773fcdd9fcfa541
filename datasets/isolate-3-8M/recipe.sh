# SPDX-License-Identifier: Apache-2.0
base_url=https://portal.nersc.gov/project/m1982/HipMCL/subgraphs
archives=(subgraph3_iso_vs_iso_30_70length_ALL.m100.oneindexed.mtx)
input=${archives[0]}
options=(--weights ignore --random-features 128 --random-labels 32 --random-split 0.8,0.1,0.1)
licence='not stated'
download='~24 GB'
edges=654620251 # without directions
counts=([vertices]=8745542 [nonzeros]=1317986044 [features]=128 [classes]=32)
