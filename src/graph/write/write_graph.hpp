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
#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace orthant::graph {

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
