#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Attention over stored entries by itself: the three products of a layer (pmm/edges/edge_products.hpp) with what makes their sparse
// factor, which is no matrix of the graph but changes every step: scores, their softmax, and the adjoints of both.
//
//   alpha := softmax(scores), Q := alpha V      dalpha := dQ V^T, to the gradients of the scores' ends      dV := alpha^T dQ

#include "models/core/owned_adjacency.hpp"
#include "models/plan/attention_step.hpp"
#include "pmm/cost/step_plan.hpp"
#include "pmm/edges/edge_products.hpp"
#include "pmm/edges/edge_scores.hpp"
#include "pmm/grid/process_grid.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace orthant::cli {

template<class T>
class EdgeProducts {
 public:
  /// For the layers of a network that all weigh their neighbours.
  EdgeProducts(pmm::ProcessGrid const& grid, models::NetworkPlan const& plan,
               models::OwnedAdjacency<T> const& adjacency);

  /// Enqueues on exec. Rows whose edges lie in several blocks have a softmax of this block alone: nothing is sent.
  void multiply(runtime::DefaultExec const& exec, pmm::LocalProduct const& product);
  /// What multiply() computes.
  [[nodiscard]] std::string formula_of(pmm::LocalProduct const& product) const;
  /// The size of the numbers of its edges, and of the ends that scores read.
  [[nodiscard]] std::int64_t bytes_of_numbers(pmm::LocalProduct const& product) const;

 private:
  [[nodiscard]] models::AttentionSteps const& steps_of(pmm::LocalProduct const& product) const;
  [[nodiscard]] pmm::DynamicOperands<T> dynamic_operands() const { return {rows_, columns_, vectors_}; }
  void sum_neighbours(runtime::DefaultExec const& exec, models::AttentionSteps const& steps);
  void find_gradients(runtime::DefaultExec const& exec, models::AttentionSteps const& steps);

  runtime::Communicator self_; // of one rank
  runtime::PassLedger passes_; // of kernels by themselves, which nobody reads
  std::shared_ptr<pmm::Workspace<T>> workspace_;
  pmm::EdgeBlock block_;
  std::vector<models::AttentionSteps> steps_; // layer by layer
  runtime::Vector<T> rows_, columns_, vectors_, coefficients_;
  runtime::Vector<T> gradient_, sums_, of_rows_, of_columns_, terms_; // results
};

extern template class EdgeProducts<float>;
extern template class EdgeProducts<double>;

} // namespace orthant::cli
