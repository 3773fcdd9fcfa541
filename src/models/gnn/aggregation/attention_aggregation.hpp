#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Attention over neighbors as the aggregation of a layer that transforms first (gnn/plan/network_plan.hpp): forward Q from U; backward dU
// and the gradient of the vectors a from dQ. Each rank has whole heads of its block (pmm/edges/README.md). The backward pass reads what the
// forward pass stored on the block: the coefficients, the values and the terms of the scores.

#include "models/gnn/aggregation/aggregation.hpp"
#include "models/gnn/plan/attention_step.hpp"
#include "models/gnn/plan/network_parameters.hpp"
#include "pmm/aggregate/row_lists.hpp"
#include "runtime/arrays/allocation.hpp"

#include <memory>

namespace orthant::models {

using runtime::GrowingVector;

/// Memory of one layer.
template<class T>
struct EdgeAttentionMemory {
  GrowingVector<T> values{"orthant::models::attention_values"};
  GrowingVector<T> of_rows{"orthant::models::attention_rows"};
  GrowingVector<T> of_columns{"orthant::models::attention_columns"};
  GrowingVector<T> ends{"orthant::models::attention_ends"}; // s and t of the rows that this rank owns
  GrowingVector<T> coefficients{"orthant::models::coefficients"};
};

/// Memory that all layers share (AttentionScratchPlan).
template<class T>
struct AttentionScratch {
  GrowingVector<T> sums{"orthant::models::attention_sums"};
  GrowingVector<T> result{"orthant::models::attention_result"};
  GrowingVector<T> values{"orthant::models::attention_values_gradient"};
  GrowingVector<T> ends{"orthant::models::attention_ends_gradient"};
  GrowingVector<T> coefficients{"orthant::models::coefficients_gradient"};

  /// Grows the arrays to the planned sizes. Must be called before a layer is made with this object.
  void reserve(AttentionScratchPlan const& plan);
};

/// Matrices of an attention layer.
template<class T>
struct AttentionParts {
  /// Whole on every rank; this rank's partial gradients.
  typename NetworkLayerParameters<T>::Attention parameters;
  pmm::DistMatrix<T> projected;                  // U, kept for the backward pass
  std::shared_ptr<pmm::RowSelection const> kept; // rows of U that Q keeps; null: all
};

/// `scratch` must have its full size, and `grid` must outlive the aggregation. The adjacency must have edges (owned_adjacency.hpp);
/// otherwise throws Error. Runs are collective over the grid's group.
template<class T>
[[nodiscard]] std::unique_ptr<Aggregation<T>>
make_attention_aggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan, runtime::Wire wire,
                           OwnedAdjacency<T> const& adjacency, std::shared_ptr<pmm::Workspace<T>> workspace,
                           AttentionParts<T> parts, AttentionScratch<T>& scratch,
                           EdgeAttentionMemory<T>& memory);

} // namespace orthant::models
