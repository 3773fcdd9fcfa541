#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Attention over neighbours as the aggregation of a layer that transforms first (gnn/plan/network_plan.hpp): Q from U, and from dQ dU
// and the gradient of the vectors a. Every rank has whole heads of its block (pmm/edges/README.md). The backward pass reads what the
// forward pass left: the coefficients, the values and what scores are made of, where the block reads them.

#include "models/gnn/layers/aggregation.hpp"
#include "models/gnn/plan/attention_step.hpp"
#include "runtime/arrays/allocation.hpp"

#include <memory>

namespace orthant::models {

using runtime::GrowingVector;

/// Memory that a layer has to itself.
template<class T>
struct EdgeAttentionMemory {
  GrowingVector<T> values{"orthant::models::attention_values"};
  GrowingVector<T> of_rows{"orthant::models::attention_rows"};
  GrowingVector<T> of_columns{"orthant::models::attention_columns"};
  GrowingVector<T> ends{"orthant::models::attention_ends"}; // s and t of the own rows
  GrowingVector<T> coefficients{"orthant::models::coefficients"};
};

/// Memory that all layers use in turn (AttentionScratchPlan).
template<class T>
struct AttentionScratch {
  GrowingVector<T> sums{"orthant::models::attention_sums"};
  GrowingVector<T> result{"orthant::models::attention_result"};
  GrowingVector<T> values{"orthant::models::attention_values_gradient"};
  GrowingVector<T> ends{"orthant::models::attention_ends_gradient"};
  GrowingVector<T> coefficients{"orthant::models::coefficients_gradient"};

  /// Makes it that long: before a layer is made with it.
  void reserve(AttentionScratchPlan const& plan);
};

/// What such a layer is made with.
template<class T>
struct AttentionParts {
  pmm::DistMatrix<T> vectors;          // a, [heads x num_vector()], whole on every rank
  pmm::DistMatrix<T> vectors_gradient; // this rank's addend
  pmm::DistMatrix<T> projected;        // U, kept for the backward pass
};

/// `scratch` has its full size already; `grid` must outlive the aggregation. Throws Error if the adjacency has no edges
/// (owned_adjacency.hpp). Collective over the grid's group when it runs.
template<class T>
[[nodiscard]] std::unique_ptr<Aggregation<T>>
make_attention_aggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan,
                           OwnedAdjacency<T> const& adjacency, std::shared_ptr<pmm::Workspace<T>> workspace,
                           AttentionParts<T> parts, AttentionScratch<T>& scratch,
                           EdgeAttentionMemory<T>& memory);

} // namespace orthant::models
