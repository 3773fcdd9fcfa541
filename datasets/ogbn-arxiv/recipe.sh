# SPDX-License-Identifier: Apache-2.0
base_url=http://snap.stanford.edu/ogb/data/nodeproppred
archives=(arxiv.zip)
input=arxiv
licence=ODC-BY
download='80 MB'
edges=1166243
counts=([vertices]=169343 [nonzeros]=2484941 [features]=128 [classes]=40 [train]=90941 [valid]=29799 [test]=48603)
