#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What belongs to vertices follows them to their positions and into the store: ids, degrees, features,
// labels, split. Every function is collective and fills in what it finds out about the graph.

#include "graph/graph_source.hpp"
#include "graph/partition/placement.hpp"
#include "graph/store/store_arrays.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace orthant::graph {

/// Ids, degrees and the map between the orders. `degrees` as Placement::positions.
void write_vertices(StoreWriter& writer, Placement const& placement, std::span<std::int64_t const> degrees,
                    StoreFacts& facts);

/// The cluster of each vertex, of `num_clusters`. `clusters` as Placement::positions.
void write_clusters(StoreWriter& writer, Placement const& placement, std::span<std::int32_t const> clusters,
                    std::int64_t num_clusters, StoreFacts& facts);

void write_features(StoreWriter& writer, GraphSource const& source, Placement const& placement,
                    StoreFacts& facts, std::function<void(double)> const& progress);

void write_labels(StoreWriter& writer, GraphSource const& source, Placement const& placement,
                  StoreFacts& facts);

/// UserError where a vertex is listed twice.
void write_split(StoreWriter& writer, GraphSource const& source, Placement const& placement,
                 StoreFacts& facts);

} // namespace orthant::graph
