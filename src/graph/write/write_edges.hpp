#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The edges of a graph, written by all ranks at once. Each function returns the number of edges of all ranks.

#include "graph/graph_source.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/together.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>

namespace orthant::graph {

// All edges of a source, each rank its own, in original ids.

/// Calls take(batch, stream) for every batch of this rank's edges. `take` must not communicate; what it or
/// the stream throws is made everybody's. Collective.
template<class Take>
void for_each_edge_batch(runtime::Communicator const& comm, GraphSource const& source,
                         std::int64_t batch_size, Take&& take) {
  if (!source.needs_resolving()) {
    runtime::together(comm, [&] {
      auto const stream = source.edges(batch_size);
      for (EdgeBatch batch; stream->next(batch);)
        take(batch, *stream);
    });
    return;
  }
  auto const stream = runtime::together(comm, [&] { return source.edges(batch_size); });
  EdgeBatch batch;
  for (bool has_more = true; has_more;) {
    auto const mine = runtime::together(comm, [&] { return stream->next(batch); });
    source.resolve(batch);
    runtime::together(comm, [&] { take(batch, *stream); });
    has_more = runtime::all_reduced(comm, std::int64_t{mine ? 1 : 0}, runtime::Reduction::max) != 0;
  }
}

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
