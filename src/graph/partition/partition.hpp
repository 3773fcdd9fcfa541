#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// From a graph source to a store. All ranks work at once, each on a share; the result is the same file,
// whatever their number.
//
//   1 collect   edges go to the rank that owns one of their ends, repeats are merged          8 bytes an edge
//   2 degrees   known at last; the permutations deal vertices by them                        24 bytes a
//   vertex 3 relabel   every edge visits the owner of its other end, then goes to the owners of its
//               rows of A[p1, p2] as a four-byte entry of a tile; memory of step 1 is used
//               again as it drains                                                           4 bytes an entry
//   4 write     tiles are sorted and written in large contiguous pieces
//   5 features, labels, split follow their vertices to order p2 (and p1)            one copy of the features
//
// No rank holds a table of all vertices, and nothing is multiplied. The file is written under a temporary
// name beside the output and renamed at the end: a killed job leaves the old file or none.

#include "graph/graph_source.hpp"
#include "graph/partition/input_summary.hpp"
#include "graph/partition/link_sets.hpp"
#include "graph/partition/statistics.hpp"
#include "graph/store/store_format.hpp"
#include "graph/store/store_reader.hpp"
#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>

namespace orthant::graph {

struct PartitionOptions {
  PermutationKind permutation = PermutationKind::twofold;
  bool chooses_permutation = false; // in place of that one: choose_order() of twofold, cluster and pieces
  Normalization normalization = Normalization::symmetric;
  bool requires_operator = false; // UserError if the graph cannot be normalized so in any precision
  EdgeRules rules;
  std::uint64_t seed = 0;
  bool replaces_output = false;  // --force
  std::int64_t metis_parts = 0;  // > 0: METIS's assignment, one part a line in order of ids, beside the store
  std::int64_t num_clusters = 0; // > 0: METIS's clusters of the vertices, in the store, for batches of them
  bool measures_statistics = false;
  std::optional<EdgeSplit> edge_split{}; // edges to hold out for link prediction
  bool uses_wide_ids = false;            // 64-bit ids in memory even where 32 bits do: for tests of that path
  /// Of a graph with more edges, pieces are cut from the order of the ids: for tests of that path.
  std::int64_t most_metis_edges = std::numeric_limits<std::int64_t>::max();
  /// Called on rank 0 now and then: what is being done, and how much of it (0..1).
  std::function<void(std::string const& step, double fraction)> on_progress;
};

/// Seconds by step, largest over ranks, which add up to all of partition()'s, and what the job took.
struct PartitionReport {
  double read_seconds = 0;    // steps 1 and 2
  double order_seconds = 0;   // METIS, the orders of the vertices, statistics
  double relabel_seconds = 0; // step 3
  double write_seconds = 0;
  double attribute_seconds = 0;
  InputSummary input;
  std::int64_t store_bytes = 0;
  std::int64_t peak_memory_bytes = 0; // resident, summed over ranks
  StoreFacts facts;
  bool has_pieces_by_id = false; // the graph is too large for METIS
  std::optional<MetisStatistics> metis;
  std::filesystem::path metis_file;
  std::optional<MetisStatistics> clusters;
  std::optional<GraphStatistics> statistics;
};

/// Writes `output`. Collective over `comm`, on which `source` was opened too. UserError, the same on all
/// ranks: output exists and is not to be replaced, disk too small, input wrong.
PartitionReport partition(runtime::Communicator const& comm, GraphSource const& source,
                          std::filesystem::path const& output, PartitionOptions const& options);

/// A store in this process's memory, for small graphs that need no file: every rank builds all of it by
/// itself (`make_source` is called with a communicator of one rank) and reads its blocks from there.
/// Collective over `comm`.
[[nodiscard]] GraphStore partition_in_memory(
    runtime::Communicator const& comm,
    std::function<std::unique_ptr<GraphSource>(runtime::Communicator const&)> const& make_source,
    PartitionOptions const& options);

} // namespace orthant::graph
