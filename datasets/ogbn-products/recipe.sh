# SPDX-License-Identifier: Apache-2.0
base_url=http://snap.stanford.edu/ogb/data/nodeproppred
archives=(products.zip)
input=products
licence='Amazon licence'
download='1.4 GB'
edges=61859140
counts=([vertices]=2449029 [nonzeros]=126167053 [features]=100 [classes]=47 [train]=196615 [valid]=39323 [test]=2213091)
