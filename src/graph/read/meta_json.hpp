#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What Orthant uses of a data set's meta.json. All of it is optional.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace orthant::graph {

struct DataSetMeta {
  std::filesystem::path path; // empty: there is none
  std::string name;
  std::optional<std::int64_t> num_vertices; // "num_nodes"
  std::optional<std::int64_t> num_edges;    // "num_edge_lines"
  std::optional<std::int64_t> num_classes;  // "num_classes"
  std::vector<std::string> splits;          // names in "splits", in the order of the file
};

/// Reads folder/meta.json if it is there. Throws UserError that names the file if it cannot be read, is not
/// JSON, gives a key twice, or a value of the wrong kind: counts are whole numbers from 0, without a
/// fraction.
[[nodiscard]] DataSetMeta read_meta(std::filesystem::path const& folder);

} // namespace orthant::graph
