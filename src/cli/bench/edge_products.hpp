#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The products of attention over stored entries (pmm/edges/edge_products.hpp) by themselves.

#include "models/core/owned_adjacency.hpp"
#include "models/plan/gcn_plan.hpp"
#include "pmm/cost/step_plan.hpp"
#include "pmm/edges/edge_products.hpp"
#include "pmm/grid/process_grid.hpp"

#include <cstdint>
#include <vector>

namespace orthant::cli {

template<class T>
class EdgeProducts {
 public:
  /// For the layers of a network that all weigh their neighbours.
  EdgeProducts(pmm::ProcessGrid const& grid, models::GcnPlan const& plan,
               models::OwnedAdjacency<T> const& adjacency);

  /// Enqueues on exec.
  void multiply(runtime::DefaultExec const& exec, pmm::LocalProduct const& product) const;
  /// The size of the numbers of its edges.
  [[nodiscard]] std::int64_t bytes_of_values(pmm::LocalProduct const& product) const;

 private:
  [[nodiscard]] pmm::Heads const& heads_of(pmm::LocalProduct const& product) const;

  pmm::EdgeBlock block_;
  std::vector<pmm::Heads> heads_; // of this rank, layer by layer
  runtime::Vector<T> rows_, columns_, values_;
  runtime::Vector<T> sums_, dots_; // results
};

extern template class EdgeProducts<float>;
extern template class EdgeProducts<double>;

} // namespace orthant::cli
