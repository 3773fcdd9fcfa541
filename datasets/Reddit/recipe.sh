# SPDX-License-Identifier: Apache-2.0
base_url=https://data.dgl.ai/dataset
archives=(reddit.zip)
licence='not stated'
edges=114615892 # both directions are listed
counts=([vertices]=232965 [nonzeros]=114848857 [features]=602 [classes]=41 [train]=153431 [valid]=23831 [test]=55703)
