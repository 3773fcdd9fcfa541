#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Information about a graph for the user before training: how its edges were treated, which vertices have no edges, and which classes no
// vertex has.

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

// Sums of the weights of the rows of A without self loops, computed while the matrix is written, and the operators that the graph allows.

class WeightSums {
 public:
  /// `rows` are all rows of A[p1, .] on this rank. The ranks' rows must be disjoint and cover the matrix. Collective.
  WeightSums(runtime::Communicator const& comm, Placement const& placement, Range rows);

  void add(std::int64_t row, std::int64_t column, float weight) {
    auto const r = static_cast<std::size_t>(row - rows_.begin);
    if (selves_[r] != column) weights_[r].add(weight);
    if (selves_[r] != column && weight < 0) ++num_negative_;
  }

  /// Writes the sums and counts the negative weights. Returns the check of all vertices with self loops added. Needs only the order arrays
  /// of write_vertices(). Collective.
  [[nodiscard]] OperatorCheck write(StoreWriter& writer, StoreFacts& facts) const;

 private:
  [[nodiscard]] std::vector<std::int64_t> in_order_p1(runtime::Communicator const& comm,
                                                      double RowWeights::*number) const;

  Placement const& placement_;
  Range rows_;
  std::vector<std::int64_t> selves_; // for each row, the column of the same vertex
  std::vector<RowWeights> weights_;
  std::int64_t num_negative_ = 0;
};

/// Throws UserError if no precision can represent the store's operator. `check` must include added self loops.
void require_operator(OperatorCheck const& check, StoreFacts const& facts);

/// Text for the user: operators that would be refused.
[[nodiscard]] std::string format_refusals(OperatorCheck const& check, StoreFacts const& facts);

struct InputSummary {
  std::int64_t num_edges_read = 0;
  std::int64_t num_dropped_loops = 0; // self loops that EdgeRules drops
  std::int64_t num_merged = 0;   // listings of an edge beyond the first, including its reverse if undirected
  std::int64_t num_isolated = 0; // vertices without an edge to another vertex
  /// True if vertex 0 is one of few isolated vertices and the last vertex is not isolated, as if ids began at 1.
  bool seems_to_begin_at_1 = false;
  std::int64_t num_empty_classes = 0;      // classes without a vertex
  std::vector<std::int64_t> empty_classes; // some of them, smallest first
  std::optional<OperatorCheck> operators;  // for graphs with weights, with self loops added
};

/// Sets num_isolated and seems_to_begin_at_1. `degrees` belong to the vertices balanced_range(N, size, rank). Collective.
void summarize_degrees(runtime::Communicator const& comm, std::span<std::int64_t const> degrees,
                       InputSummary& summary);

/// Sets the empty classes by reading all labels once. With more than 2^24 classes, none are reported. Collective.
void summarize_labels(runtime::Communicator const& comm, GraphSource const& source, InputSummary& summary);

/// Text for the user: lines with a name and a statement.
[[nodiscard]] std::string format_summary(InputSummary const& summary, StoreFacts const& facts);

// Time, memory and disk space that partitioning a graph needs, estimated before it starts, and a check of the free disk space.

struct Estimate {
  std::int64_t num_edges = 0;    // -1: unknown before they are read
  std::int64_t memory_bytes = 0; // peak, summed over ranks
  std::int64_t disk_bytes = 0;   // of the store
  double seconds = 0;
};

/// An upper estimate: merged repeats make all numbers smaller. Seconds are for cores of 2025. Collective.
[[nodiscard]] Estimate estimate_partition(runtime::Communicator const& comm, GraphSource const& source,
                                          PermutationKind permutation);

/// Throws UserError on all ranks if the file system of `output` has less than `needed` bytes free. Collective.
void require_disk_space(runtime::Communicator const& comm, std::filesystem::path const& output,
                        std::int64_t needed);

/// The first names, and how many more there are.
[[nodiscard]] std::string some_of(std::vector<std::string> const& names);
/// "1.5 GiB", "312 KiB".
[[nodiscard]] std::string bytes_text(std::int64_t bytes);

} // namespace orthant::graph
