# SPDX-License-Identifier: Apache-2.0
base_url=https://igb-public-awsopen.s3.amazonaws.com/igb-heterogeneous
archives=(igb_heterogeneous_tiny.tar.gz)
input=tiny
options=(--add-inverse --random-split 0.6,0.2,0.2) # as IGB's loader, which draws other vertices
licence=ODC-BY
counts=([vertices]=549999 [features]=1024 [classes]=19 [train]=60000 [valid]=20000 [test]=20000)
