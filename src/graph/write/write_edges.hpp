#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The edges of a graph, written by all ranks at once. Each function returns the number of edges of all ranks.

#include "graph/graph_source.hpp"
#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>

namespace orthant::graph {

/// How much of this rank's edges is done, 0..1.
using EdgeProgress = std::function<void(double fraction)>;

/// folder/edge.csv.gz and, where there are weights, edge-weight.csv.gz, as the streams give them. Collective.
std::int64_t write_csv_edges(runtime::Communicator const& comm, GraphSource const& source,
                             std::filesystem::path const& folder, EdgeProgress const& progress);

/// folder/edge_index.npy and edge_weight.npy. Reads the edges twice where the source does not know how many
/// this rank has. Collective.
std::int64_t write_npy_edges(runtime::Communicator const& comm, GraphSource const& source,
                             std::filesystem::path const& folder, EdgeProgress const& progress);

/// Lines "source<tab>target[<tab>weight]", sorted: edges go to the rank that owns their source. Collective.
std::int64_t write_sorted_edges(runtime::Communicator const& comm, GraphSource const& source,
                                std::filesystem::path const& path, EdgeProgress const& progress);

} // namespace orthant::graph
