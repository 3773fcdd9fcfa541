#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Features of edges while a graph is partitioned. They stay on the rank that has read them; an edge carries its number, which the owner of its
// tile finally exchanges for the features.

#include "graph/graph_source.hpp"
#include "graph/partition/placement.hpp"
#include "graph/store/store_arrays.hpp"
#include "graph/store/store_format.hpp"
#include "runtime/comm/communicator.hpp"

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace orthant::graph {

/// Edges carry a number in place of a weight.
[[nodiscard]] inline float as_weight(std::uint32_t number) {
  return std::bit_cast<float>(number);
}
[[nodiscard]] inline std::uint32_t as_number(float weight) {
  return std::bit_cast<std::uint32_t>(weight);
}

class EdgeFeatureRows {
 public:
  /// `num_local`: number of edges that this rank will read. Throws UserError if all ranks together read more than 2^32. Collective.
  EdgeFeatureRows(runtime::Communicator const& comm, std::int64_t num_local, std::int64_t num_columns);

  [[nodiscard]] std::int64_t num_columns() const { return num_columns_; }
  /// Appends the features of edge i of a batch that this rank has read. Returns its number.
  std::uint32_t add(EdgeBatch const& batch, std::size_t i);
  /// Throws UserError: this edge was listed more than once.
  [[noreturn]] static void refuse_repeats(std::uint64_t one_end, std::uint64_t other_end);
  /// The features of the edges with these numbers, [numbers x num_columns()]. Each rank holds its rows and the ones that it asks for.
  /// Collective.
  [[nodiscard]] std::vector<float> fetch(std::span<std::uint32_t const> numbers) const;

 private:
  runtime::Communicator const& comm_;
  std::int64_t num_columns_;
  std::vector<std::int64_t> firsts_; // [ranks + 1] first number of each rank
  std::vector<float> rows_;
};

/// Means of the features over the rows of A without self loops, computed while the matrix is written.
class EdgeFeatureMeans {
 public:
  /// `rows` are all rows of A[p1, .] on this rank. The ranks' rows must be disjoint and cover the matrix. Collective.
  EdgeFeatureMeans(runtime::Communicator const& comm, Placement const& placement, Range rows,
                   std::int64_t num_columns);

  /// Must be called in the order of the tiles, which does not depend on the number of ranks.
  void add(std::int64_t row, std::int64_t column, std::span<float const> features);
  /// Writes /vertices/edge_feature_means. Collective.
  void write(StoreWriter& writer);

 private:
  std::int64_t num_vertices_;
  Range rows_;
  std::vector<std::int64_t> selves_; // for each row, the column of the same vertex: its position in p2
  std::int64_t num_columns_;
  std::vector<double> sums_; // [rows x columns]
  std::vector<std::int64_t> counts_;
};

} // namespace orthant::graph
