#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Relations and names of vertices in the store.

#include "graph/graph_source.hpp"
#include "graph/partition/link_sets.hpp"
#include "graph/store/store_arrays.hpp"
#include "graph/store/store_format.hpp"
#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace orthant::graph {

/// Throws UserError if a graph with relations has weights, or if equal edges of one relation, or of features, are to be kept or edges to be held
/// out.
void require_rules(GraphFacts const& facts, EdgeRules const& rules, std::optional<EdgeSplit> const& split);

/// Numbers of entries by relation, counted while the matrix is written.
class RelationCounts {
 public:
  explicit RelationCounts(std::int64_t num_relations) : counts_(static_cast<std::size_t>(num_relations)) {}

  void add(float relation) { ++counts_[static_cast<std::size_t>(relation)]; }
  /// The counts over all ranks. Collective.
  [[nodiscard]] std::vector<std::int64_t> total(runtime::Communicator const& comm) const;

 private:
  std::vector<std::uint64_t> counts_;
};

/// Writes names and counts of the relations in `facts`, and the names of classes and vertices of the source, if there are any, and sets the sizes
/// of their texts in `facts`. Collective.
void write_names(StoreWriter& writer, GraphSource const& source, StoreFacts& facts);

} // namespace orthant::graph
