# SPDX-License-Identifier: Apache-2.0
base_url=http://snap.stanford.edu/ogb/data/nodeproppred
archives=(mag.zip)
input=mag
options=(--add-inverse)
licence=ODC-BY
download='415 MB'
edges=21111007
counts=([vertices]=1939743 [nonzeros]=44121887 [features]=128 [classes]=349 [train]=629571 [valid]=64879 [test]=41939)
