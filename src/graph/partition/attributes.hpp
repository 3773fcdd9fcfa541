#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Moves the attributes of vertices to their positions and writes them to the store: ids, degrees, features, labels, split. Every function
// is collective and stores its findings about the graph in `facts`.

#include "graph/graph_source.hpp"
#include "graph/partition/link_sets.hpp"
#include "graph/partition/placement.hpp"
#include "graph/store/store_arrays.hpp"
#include "graph/store/store_format.hpp"
#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace orthant::graph {

/// Writes ids, degrees and the map between the orders. `degrees` is distributed like Placement::positions.
void write_vertices(StoreWriter& writer, Placement const& placement, std::span<std::int64_t const> degrees,
                    StoreFacts& facts);

/// Writes the cluster of each vertex; there are `num_clusters`. `clusters` is distributed like Placement::positions.
void write_clusters(StoreWriter& writer, Placement const& placement, std::span<std::int32_t const> clusters,
                    std::int64_t num_clusters, StoreFacts& facts);

/// Writes `rows`, [places x width] row-major, as an array [width x N]: rows go to these places. All ranks' places together must be all places.
void write_rows(StoreWriter& writer, std::string const& name, std::int64_t num_vertices,
                std::span<std::int64_t const> places, std::int64_t width, std::span<double const> rows);

void write_features(StoreWriter& writer, GraphSource const& source, Placement const& placement,
                    StoreFacts& facts, std::function<void(double)> const& progress);

void write_labels(StoreWriter& writer, GraphSource const& source, Placement const& placement,
                  StoreFacts& facts);

/// Throws UserError if a vertex is listed twice.
void write_split(StoreWriter& writer, GraphSource const& source, Placement const& placement,
                 StoreFacts& facts);

// Relations and names of vertices in the store.

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
