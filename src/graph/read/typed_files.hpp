#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Finds the files of a graph of several types in a folder (typed_graph.hpp has the layouts).

#include "graph/read/graph_files.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace orthant::graph {

struct RelationFiles {
  std::string source, name, target;
  std::filesystem::path edges{};
  bool is_text = false;
  bool has_rows = false; // the array is [edges, 2] instead of [2, edges]
  std::int64_t num_edges = -1;

  /// "SOURCE__NAME__TARGET".
  [[nodiscard]] std::string full_name() const { return source + "__" + name + "__" + target; }
};

struct SplitFiles {
  enum class Kind : std::uint8_t { text, arrays, masks };
  std::optional<Kind> kind{}; // nullopt: there is no split
  std::string name{};
  std::int64_t count = 1;                       // columns of masks
  std::array<std::filesystem::path, 3> paths{}; // train, valid, test; empty: no such part
};

struct TypeFiles {
  using Path = std::filesystem::path;
  std::string name;
  VertexCount count{};
  std::int64_t num_features = 0;
  std::optional<Path> feature_npy{}, feature_text{}, label_npy{}, label_text{};
  SplitFiles split{};
};

struct TypedFiles {
  std::string name;
  std::vector<TypeFiles> types;              // by name
  std::vector<RelationFiles> relations;      // by source, name and target
  std::vector<std::filesystem::path> others; // that give counts

  /// All files that are read.
  [[nodiscard]] std::vector<std::filesystem::path> all() const;
};

/// Whether the folder has edges of relations.
[[nodiscard]] bool has_typed_files(std::filesystem::path const& folder);
/// Throws UserError if the folder has no edges of relations, or if files contradict each other.
[[nodiscard]] TypedFiles find_typed_files(Input const& input);

} // namespace orthant::graph
