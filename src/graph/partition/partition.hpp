#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Converts a graph source to a store. All ranks work in parallel, each on a share. The file does not depend on the number of ranks.
//
//   1 collect   edges go to the rank that owns one of their ends; repeats are merged     8 bytes per edge
//   2 degrees   are now known; the permutations deal vertices by them                    24 bytes per vertex
//   3 relabel   every edge visits the owner of its other end, then goes to the owners
//               of its rows of A[p1, p2] as a four-byte entry of a tile; the memory of
//               step 1 is reused as it drains                                            4 bytes per entry
//   4 write     tiles are sorted and written in large contiguous pieces
//   5 features, labels and split move with their vertices to order p2 (and p1)           one copy of the features
//
// No rank holds a table of all vertices, and no matrix products are computed. The file is written under a temporary name in the same folder
// and renamed at the end: a killed job leaves an older file as it was.

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
  bool chooses_permutation = false; // ignores `permutation`: choose_order() of twofold, cluster, pieces
  Normalization normalization = Normalization::symmetric;
  bool requires_operator = false; // throws UserError if no precision allows the normalization
  EdgeRules rules;
  std::uint64_t seed = 0;
  bool replaces_output = false;  // --force
  std::int64_t metis_parts = 0;  // > 0: also write METIS's assignment, one part per line in order of ids
  std::int64_t num_clusters = 0; // > 0: also store METIS's clusters of the vertices, for cluster batches
  bool measures_statistics = false;
  std::optional<EdgeSplit> edge_split{}; // edges to hold out for link prediction
  bool uses_wide_ids = false;            // 64-bit ids in memory even if 32 bits suffice, for tests
  /// For a graph with more edges, pieces are cut from the order of the ids. Smaller only in tests.
  std::int64_t most_metis_edges = std::numeric_limits<std::int64_t>::max();
  /// Called on rank 0 from time to time with the current step and its completed fraction (0..1).
  std::function<void(std::string const& step, double fraction)> on_progress;
};

/// Seconds per step, largest over ranks, which add up to the time of partition(), and resources used by the job.
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
  bool has_pieces_by_id = false; // true if the graph is too large for METIS
  std::optional<MetisStatistics> metis;
  std::filesystem::path metis_file;
  std::optional<MetisStatistics> clusters;
  std::optional<GraphStatistics> statistics;
};

/// Writes `output`. Collective over `comm`, which must be the communicator of `source`. Throws UserError on all ranks if output exists and
/// must not be replaced, if the disk is too small, or if the input is wrong.
PartitionReport partition(runtime::Communicator const& comm, GraphSource const& source,
                          std::filesystem::path const& output, PartitionOptions const& options);

/// A store in this process's memory, for small graphs that need no file. Every rank builds the whole store alone (`make_source` is called
/// with a communicator of one rank) and reads its blocks from it. Collective over `comm`.
[[nodiscard]] GraphStore partition_in_memory(
    runtime::Communicator const& comm,
    std::function<std::unique_ptr<GraphSource>(runtime::Communicator const&)> const& make_source,
    PartitionOptions const& options);

} // namespace orthant::graph
