# SPDX-License-Identifier: Apache-2.0
base_url=http://snap.stanford.edu/ogb/data/nodeproppred
archives=(papers100M-bin.zip)
input=papers100M-bin
options=(--directed) # as in the published measurements
licence=ODC-BY
download='56 GB'
edges=1615685872
counts=([vertices]=111059956 [nonzeros]=1726745828 [features]=128 [classes]=172
  [train]=1207179 [valid]=125265 [test]=214338)
