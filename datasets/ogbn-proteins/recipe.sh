# SPDX-License-Identifier: Apache-2.0
base_url=http://snap.stanford.edu/ogb/data/nodeproppred
archives=(proteins.zip)
input=proteins
options=(--features-from-edges mean) # vertices have none
licence=CC0
download='210 MB'
edges=39561252
counts=([vertices]=132534 [nonzeros]=79255038 [features]=8 [classes]=112 [train]=86619 [valid]=21236 [test]=24679)
