#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Sums of the weights of the rows of A, self loops left out, taken while the matrix is written; and which operators can be
// made of the graph.

#include "graph/checks/operator_check.hpp"
#include "graph/partition/placement.hpp"
#include "graph/store/store_writer.hpp"

#include <cstdint>
#include <vector>

namespace orthant::graph {

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

} // namespace orthant::graph
