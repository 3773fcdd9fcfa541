#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which files of a folder make up a graph. Looks, reads no more than meta.json.

#include "graph/read/meta_json.hpp"
#include "graph/read/open_graph.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace orthant::graph {

struct GraphFiles {
  using Path = std::filesystem::path;
  enum class Topology : std::uint8_t { ogb_text, ogb_npz, npy, scipy_npz, edge_list, matrix_market };

  Topology topology{};
  Path edges;                        // edge.csv[.gz], data.npz, edge_index.npy, an edge list, the .mtx ..
  std::optional<Path> edge_weights;  // edge-weight.csv[.gz], edge_weight.npy or edge_attr.npy
  std::optional<Path> num_nodes;     // num-node-list.csv[.gz]
  std::optional<Path> num_edges;     // num-edge-list.csv[.gz]
  std::optional<Path> feature_text;  // node-feat.csv[.gz]
  std::optional<Path> feature_npy;   // x.npy or feat.npy
  std::optional<Path> sparse_npy;    // the folder that holds x_indptr.npy ..
  std::optional<Path> label_text;    // node-label.csv[.gz]
  std::optional<Path> label_npz;     // node-label.npz
  std::optional<Path> label_npy;     // labels.npy, y.npy or label.npy
  std::optional<Path> dgl_data;      // NAME_data.npz
  using Lists = std::array<Path, 3>; // train, valid, test
  std::optional<Lists> split_text;   // split/NAME/train.csv[.gz] ..
  std::optional<Lists> split_npy;    // train_idx.npy ..
  std::optional<Lists> split_masks;  // train_mask.npy ..
  std::string split_name;
  DataSetMeta meta;
};

/// Throws UserError: nothing there, no format fits (it lists what it looked for), no such split, an entry
/// that is there but cannot be reached. An array that lacks its companions is named all the same, so that
/// opening them says which is missing.
[[nodiscard]] GraphFiles find_graph_files(Input const& input);

} // namespace orthant::graph
