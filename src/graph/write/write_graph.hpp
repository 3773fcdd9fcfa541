#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Writes a graph, from any source, in original ids and in a form that open_graph() reads back. All ranks
// write at once, each what its streams give.
//
//   ogb       raw/{edge,node-feat,node-label,num-node-list,num-edge-list}.csv.gz, split/NAME/*.csv.gz;
//   weights
//             in raw/edge-weight.csv.gz; sparse features, which OGB has not, in npy/
//   npy       {edge_index, edge_weight, x or x_indptr, x_indices, x_data, x_shape, labels, *_idx}.npy
//   edgelist  edges.txt, "source<tab>target[<tab>weight]", sorted; the rest as in npy
//
// and meta.json with the counts. Edges are as the source lists them: no reverse is added.

#include "graph/graph_source.hpp"
#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace orthant::graph {

enum class OutputFormat : std::uint8_t { ogb, npy, edgelist };

/// "ogb", "npy", "edgelist". Throws UserError on another word.
[[nodiscard]] OutputFormat parse_output_format(std::string_view word);

struct WriteOptions {
  OutputFormat format = OutputFormat::npy;
  /// Replaces a graph that Orthant wrote before; else it is refused. A folder of anything else is refused always.
  bool replaces_output = false;
  /// Called on rank 0 now and then: what is being written, and how much of it (0..1).
  std::function<void(std::string const& step, double fraction)> on_progress{};
};

/// Collective over `comm`, on which `source` was made. The ranks' rows must lie in the order of the ranks (as
/// all sources here give them). Memory: a batch a rank, and for edgelist all of a rank's edges once (24 bytes
/// each). Throws UserError, the same on all ranks, where the folder cannot be written or the source is wrong.
void write_graph(runtime::Communicator const& comm, GraphSource const& source,
                 std::filesystem::path const& folder, WriteOptions const& options);

} // namespace orthant::graph
