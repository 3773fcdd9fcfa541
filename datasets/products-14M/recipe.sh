# SPDX-License-Identifier: Apache-2.0
archives=(products-14M.mtx)
input=${archives[0]}
options=(--weights ignore --random-features 128 --random-labels 32 --random-split 0.8,0.1,0.1)
licence='not stated'
edges=115394635 # without directions
counts=([vertices]=14249639 [nonzeros]=245036907 [features]=128 [classes]=32)
