#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The maximum over neighbors in place of A^ F (gnn/plan/network_products.hpp). The backward pass reads from which neighbor each maximum of
// the last forward pass came (its place).

#include "models/gnn/aggregation/aggregation.hpp"
#include "models/gnn/plan/network_plan.hpp"
#include "models/gnn/plan/network_products.hpp"
#include "runtime/arrays/allocation.hpp"

#include <memory>

namespace orthant::models {

// Memory of layers that take the maximum over neighbors (gnn/plan/network_products.hpp).

/// Lengths of the arrays that all layers share.
struct MaximumScratchPlan {
  std::int64_t values = 0; // F, and d
  std::int64_t result = 0; // p, and dP
  std::int64_t found = 0;  // maxima while they are computed, and length of each layer's places

  /// Raises each length to that of `other` if it is larger.
  void add(MaximumScratchPlan const& other);
  void list(pmm::StepPlan& step) const;
};

/// Scratch sizes of a network. `cells`: cells of its whole block in the schedule `rows`; ignored otherwise.
[[nodiscard]] MaximumScratchPlan maximum_scratch_of(pmm::StepPlan const& step, NetworkPlan const& plan,
                                                    pmm::CellSizes const& cells);
void reserve_maximum(pmm::WorkspacePlan& work, pmm::StepPlan const& step, NetworkPlan const& plan);
/// Lists the arrays that layers share, and the arrays of each layer.
void plan_maximum_arrays(pmm::StepPlan& step, NetworkPlan const& plan);

/// Memory that all layers share (MaximumScratchPlan).
template<class T>
struct MaximumScratch {
  runtime::GrowingVector<T> values{"orthant::models::maximum_values"};
  runtime::GrowingVector<T> result{"orthant::models::maximum_result"};
  runtime::Vector<runtime::ValueIndex<T>> found; // grows like a GrowingVector

  /// Grows the arrays to the planned sizes. Must be called before a layer is made with this object.
  void reserve(MaximumScratchPlan const& plan);
};
using MaximumPlaces = runtime::GrowingVector<runtime::LocalColumn>;

/// `scratch` must have its full size, `places` belongs to the layer, and `grid` must outlive the aggregation. `column_ids`:
/// original ids of the columns of a block in the schedule `pmm3d`; blocks of the schedule `rows` have ids themselves
/// (owned_adjacency.hpp). Throws Error if there are no ids. Runs are collective over the grid's group.
template<class T>
[[nodiscard]] std::unique_ptr<Aggregation<T>>
make_maximum_aggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan, runtime::Wire wire,
                         Adjacency<T> const& adjacency, runtime::Vector<std::int64_t> const& column_ids,
                         std::shared_ptr<pmm::Workspace<T>> workspace, MaximumScratch<T>& scratch,
                         MaximumPlaces& places);

} // namespace orthant::models
