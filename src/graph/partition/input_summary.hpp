#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a user would want to know of a graph before training on it: what became of its edges, which vertices
// nothing is known of, which classes nobody has.

#include "graph/checks/operator_check.hpp"
#include "graph/graph_source.hpp"
#include "graph/partition/placement.hpp"
#include "graph/store/store_arrays.hpp"
#include "graph/store/store_format.hpp"
#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace orthant::graph {

// Sums of the weights of the rows of A, self loops left out, taken while the matrix is written; and which operators can be
// made of the graph.

class WeightSums {
 public:
  /// Of these rows of A[p1, .], all of a rank's. Ranks have disjoint rows, all of them together. Collective.
  WeightSums(runtime::Communicator const& comm, Placement const& placement, Range rows);

  void add(std::int64_t row, std::int64_t column, float weight) {
    auto const r = static_cast<std::size_t>(row - rows_.begin);
    if (selves_[r] != column) weights_[r].add(weight);
    if (selves_[r] != column && weight < 0) ++num_negative_;
  }

  /// Writes the sums, and counts the negative weights. Returns the check of all vertices with self loops added. Needs the
  /// arrays of write_vertices' orders only. Collective.
  [[nodiscard]] OperatorCheck write(StoreWriter& writer, StoreFacts& facts) const;

 private:
  [[nodiscard]] std::vector<std::int64_t> in_order_p1(runtime::Communicator const& comm,
                                                      double RowWeights::*number) const;

  Placement const& placement_;
  Range rows_;
  std::vector<std::int64_t> selves_; // the columns where the rows' vertices meet themselves
  std::vector<RowWeights> weights_;
  std::int64_t num_negative_ = 0;
};

/// Throws UserError if no precision can hold the store's operator. `check`: with self loops added.
void require_operator(OperatorCheck const& check, StoreFacts const& facts);

/// Lines for people: which operators would be refused.
[[nodiscard]] std::string format_refusals(OperatorCheck const& check, StoreFacts const& facts);

struct InputSummary {
  std::int64_t num_edges_read = 0;
  std::int64_t num_dropped_loops = 0; // self loops that EdgeRules drop
  std::int64_t num_merged = 0;   // listings of an edge beyond the first; of its reverse, too, if undirected
  std::int64_t num_isolated = 0; // vertices without an edge to another one
  /// Vertex 0 is one of few that are isolated, and the last vertex is not, as if ids began at 1.
  bool seems_to_begin_at_1 = false;
  std::int64_t num_empty_classes = 0;      // that no vertex has
  std::vector<std::int64_t> empty_classes; // the first few of them
  std::optional<OperatorCheck> operators;  // of a graph with weights, with self loops added
};

/// num_isolated and seems_to_begin_at_1. `degrees`: of balanced_range(N, size, rank). Collective.
void summarize_degrees(runtime::Communicator const& comm, std::span<std::int64_t const> degrees,
                       InputSummary& summary);

/// The empty classes, by reading all labels once; of more than 2^24 classes none are named. Collective.
void summarize_labels(runtime::Communicator const& comm, GraphSource const& source, InputSummary& summary);

/// Lines for people, each with a name and then what is said.
[[nodiscard]] std::string format_summary(InputSummary const& summary, StoreFacts const& facts);

// What partitioning a graph will take, before it starts, and whether the disk has room.

struct Estimate {
  std::int64_t num_edges = 0;    // -1: not known before they are read
  std::int64_t memory_bytes = 0; // peak, summed over ranks
  std::int64_t disk_bytes = 0;   // of the store
  double seconds = 0;
};

/// Upper figures: repeats merge and make all of them smaller. Seconds on cores of 2025. Collective.
[[nodiscard]] Estimate estimate_partition(runtime::Communicator const& comm, GraphSource const& source,
                                          PermutationKind permutation);

/// UserError, the same on all ranks, where the file system of `output` has less than `needed` bytes free.
/// Collective.
void require_disk_space(runtime::Communicator const& comm, std::filesystem::path const& output,
                        std::int64_t needed);

/// "1.5 GiB", "312 KiB".
[[nodiscard]] std::string bytes_text(std::int64_t bytes);

} // namespace orthant::graph
