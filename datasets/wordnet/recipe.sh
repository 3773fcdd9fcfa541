# SPDX-License-Identifier: Apache-2.0
# No base_url: Debian's package manager fetches the package (README.md).
archives=(wordnet-base_3.0-37_all.deb)
input=graph
options=(--self-loops drop) # convert.py gives one to each synset without pointers
licence='WordNet 3.0'
download='6.5 MB'
edges=377592
counts=([vertices]=117659 [nonzeros]=482202 [features]=256 [classes]=45 [train]=11765 [valid]=11765 [test]=94129)
programs=(python3)

prepare() { # FOLDER
  python3 "$here/wordnet/convert.py" "$1/usr/share/wordnet" "$1/graph"
}
