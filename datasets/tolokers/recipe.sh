# SPDX-License-Identifier: Apache-2.0
licence='CC BY 4.0'
download=none
edges=519000
counts=([vertices]=11758 [nonzeros]=1049758 [features]=10 [classes]=2 [train]=5879 [valid]=2939 [test]=2940)
