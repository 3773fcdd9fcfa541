# SPDX-License-Identifier: Apache-2.0
licence='facts'
download=none
edges=78
counts=([vertices]=34 [nonzeros]=190 [features]=34 [classes]=2 [train]=2 [valid]=16 [test]=16)
