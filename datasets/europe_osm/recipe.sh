# SPDX-License-Identifier: Apache-2.0
base_url=https://sparse.tamu.edu/MM/DIMACS10
archives=(europe_osm.tar.gz)
input=europe_osm/europe_osm.mtx # europe_osm_coord.mtx lies beside it
options=(--random-features 128 --random-labels 32 --random-split 0.8,0.1,0.1)
licence='CC BY 4.0, OpenStreetMap'
edges=54054660
counts=([vertices]=50912018 [nonzeros]=159021338 [features]=128 [classes]=32)
