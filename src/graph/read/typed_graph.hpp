#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Graphs whose vertices and edges have types, as folders of files by type:
//
//   PyTorch Geometric, IGB, MAG240M    TYPE/{x, y, train_mask, ..}.npy, SOURCE__NAME__TARGET/edge_index.npy, in the folder or in processed/
//   OGB                                raw/num-node-dict.csv.gz, raw/relations/SOURCE___NAME___TARGET/edge.csv.gz,
//                                      raw/node-feat/TYPE/node-feat.csv.gz, raw/node-label/TYPE/.., split/NAME/TYPE/train.csv.gz
//   OGB, binary                        raw/{num_nodes_dict, num_edges_dict, edge_index_dict, node_feat_dict, node-label}.npz with a member
//                                      per type or SOURCE___NAME___TARGET, split/NAME/TYPE/train.csv.gz
//   CSVDataset of DGL                  meta.yaml and several tables of vertices or edges (csv_data_set.hpp)
//
// Vertices have names if the tables of a CSVDataset or TYPE/names.npy, an array of texts, give them.
//
// Vertices of one type have contiguous ids: those of the first type, of the second, .. (types by name). Rows of features that are
// narrower than those of another type end with zeros; a type without features has rows of zeros.

#include "graph/read/open_graph.hpp"

#include <memory>

namespace orthant::graph {

/// Whether the folder has edges of relations in one of these layouts.
[[nodiscard]] bool is_typed_graph(Input const& input);

/// Like open_graph(), for a folder in one of these layouts. With `adds_inverse`, a relation between two types gets the inverse rev_NAME,
/// and edges within a type get their reverse in the same relation, as PyTorch Geometric's ToUndirected does. Collective.
[[nodiscard]] std::unique_ptr<GraphSource> open_typed_graph(runtime::Communicator const& comm,
                                                            Input const& input, InputFiles* files);

} // namespace orthant::graph
