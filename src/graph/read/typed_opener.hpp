#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// How open_typed_graph() makes the parts of a graph of several types from its files, on each rank without communication.

#include "graph/graph_source.hpp"
#include "graph/read/typed_files.hpp"
#include "runtime/error.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace orthant::graph {

struct TypedOpener {
  Input input;
  TypedFiles files;
  Share share;
  std::vector<std::int64_t> offsets{}; // [types + 1]
  std::vector<std::int64_t>
      inverses{}; // [relations] number of the inverse, perhaps the relation itself; -1: none
  std::vector<std::string> names{};                   // of the relations, including inverses
  std::vector<RelationEnds> ends{};                   // as many
  std::optional<std::size_t> labelled = std::nullopt; // type with labels
  std::shared_ptr<NameList const> vertex_names{};     // of all vertices, on rank 0
  std::int64_t held_bytes = 0;                        // of edges of tables, on this rank

  [[nodiscard]] std::size_t type_of(std::string const& name) const {
    for (std::size_t t = 0; t < files.types.size(); ++t)
      if (files.types[t].name == name) return t;
    runtime::throw_user("there is no type of vertices \"{}\"", name);
  }
  [[nodiscard]] std::int64_t count_of(std::size_t type) const { return files.types[type].count.count; }

  /// Finds the types, their counts, and the numbers of edges, from small files and the headers of arrays.
  void read_heads();
  /// Names the relations, and with --add-inverse their inverses.
  void name_relations();
  /// Edges of a relation by ids within their types, or of a table by ids of the graph. Requires ids below the larger of the known vertex
  /// counts of the two types.
  [[nodiscard]] std::unique_ptr<EdgeStream> open_edges(RelationFiles const& relation,
                                                       std::int64_t batch_size) const;
  /// Converts ids within the types of a relation to those of the graph. Throws UserError for ids beyond their types.
  void add_offsets(std::vector<Edge>& edges, std::size_t relation) const;

  // Must be called when the numbers of vertices are known.
  [[nodiscard]] EdgePart edge_part() const;
  [[nodiscard]] FeaturePart feature_part() const;
  /// Labels of all vertices, from those of the type with labels; other types have none.
  [[nodiscard]] LabelPart label_part(LabelPart of_type) const;
  /// Integer labels of the type that has labels.
  [[nodiscard]] std::unique_ptr<LabelStream> open_labels(std::int64_t num_classes,
                                                         std::int64_t batch_rows) const;
  [[nodiscard]] SplitPart split_part() const;
};

} // namespace orthant::graph
