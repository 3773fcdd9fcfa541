#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Writes a graph from any source with its original ids, in a format that open_graph() can read. All ranks write in parallel, each the data
// of its streams.
//
//   ogb       raw/{edge,node-feat,node-label,num-node-list,num-edge-list}.csv.gz, split/NAME/*.csv.gz;
//             weights in raw/edge-weight.csv.gz; sparse features, which OGB does not have, in npy/
//   npy       {edge_index, edge_weight, x or x_indptr, x_indices, x_data, x_shape, labels, *_idx}.npy
//   edgelist  edges.txt, "source<tab>target[<tab>weight]", sorted; all other data as in npy
//
// and meta.json with the counts. Edges are written as the source lists them: no reverse is added.

#include "graph/graph_source.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/together.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace orthant::graph {

// Writes the edges of a graph with all ranks in parallel. Each function returns the total number of edges of all ranks.

// All edges of a source in original ids; each rank visits its own.

/// Calls take(batch, stream) for every batch of this rank's edges. `take` must not communicate. If `take` or the stream throws, all ranks
/// throw the error. Collective.
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

/// Called with the completed fraction of this rank's edges, 0..1.
using EdgeProgress = std::function<void(double fraction)>;

/// Writes folder/edge.csv.gz and, if there are weights, edge-weight.csv.gz, in the order of the streams. Collective.
std::int64_t write_csv_edges(runtime::Communicator const& comm, GraphSource const& source,
                             std::filesystem::path const& folder, EdgeProgress const& progress);

/// Writes folder/edge_index.npy and, if there are weights, edge_weight.npy. Reads the edges twice if the source does not know the number of
/// this rank's edges. Collective.
std::int64_t write_npy_edges(runtime::Communicator const& comm, GraphSource const& source,
                             std::filesystem::path const& folder, EdgeProgress const& progress);

/// Writes sorted lines "source<tab>target[<tab>weight]". Edges are sent to the rank that owns their source. Collective.
std::int64_t write_sorted_edges(runtime::Communicator const& comm, GraphSource const& source,
                                std::filesystem::path const& path, EdgeProgress const& progress);

enum class OutputFormat : std::uint8_t { ogb, npy, edgelist };

/// Accepts "ogb", "npy", "edgelist". Throws UserError on another word.
[[nodiscard]] OutputFormat parse_output_format(std::string_view word);

struct WriteOptions {
  OutputFormat format = OutputFormat::npy;
  /// Replaces a graph that Orthant wrote; otherwise it is refused. A folder with anything else is always refused.
  bool replaces_output = false;
  /// Called on rank 0 from time to time with the current step and its completed fraction (0..1).
  std::function<void(std::string const& step, double fraction)> on_progress{};
};

/// Writes the graph. Collective over `comm`, which must be the communicator of `source`. The rows of the ranks must be in the order of the
/// ranks, as in all sources here. Memory: one batch per rank, and for edgelist all edges of a rank once (24 bytes each). Throws UserError
/// on all ranks if the folder cannot be written or the source is wrong.
void write_graph(runtime::Communicator const& comm, GraphSource const& source,
                 std::filesystem::path const& folder, WriteOptions const& options);

} // namespace orthant::graph
