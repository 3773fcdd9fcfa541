# SPDX-License-Identifier: Apache-2.0
base_url=https://linqs-data.soe.ucsc.edu/public/lbc
archives=(cora.tgz)
input=.
options=(--random-split 0.052,0.185,0.369) # the sizes of the public split, which this source does not have
licence='not stated'
download='170 kB'
edges=5429
counts=([vertices]=2708 [nonzeros]=13264 [features]=1433 [classes]=7)

# cora.content: paper, words, class; cora.cites: cited paper, citing paper. Papers and classes are numbered as they come.
prepare() { # FOLDER
  mkdir "$1/raw" && awk -v raw="$1/raw" '
    FILENAME ~ /content$/ {
      paper[$1] = num_papers++
      if (!($NF in class)) class[$NF] = num_classes++
      print class[$NF] >(raw "/node-label.csv")
      sub(/^[^\t]*\t/, "")
      sub(/\t[^\t]*$/, "")
      gsub(/\t/, ",")
      print >(raw "/node-feat.csv")
      next
    }
    !($1 in paper && $2 in paper) { exit 1 }
    { print paper[$2] "," paper[$1] >(raw "/edge.csv") }
    END { print num_papers >(raw "/num-node-list.csv") }' "$1/cora/cora.content" "$1/cora/cora.cites"
}
