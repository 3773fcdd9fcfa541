#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The maximum of the neighbours in place of A^ F (gnn/plan/network_products.hpp). The backward pass reads which neighbours the
// maxima of the last forward pass are of.

#include "models/gnn/layers/aggregation.hpp"
#include "models/gnn/plan/network_plan.hpp"
#include "models/gnn/plan/network_products.hpp"
#include "runtime/arrays/allocation.hpp"

#include <memory>

namespace orthant::models {

// The memory of layers that take the maximum of the neighbours (gnn/plan/network_products.hpp).

/// Numbers that all layers use in turn.
struct MaximumScratchPlan {
  std::int64_t values = 0; // F, and d
  std::int64_t result = 0; // p, and dP
  std::int64_t found = 0;  // and places, which each layer has to itself

  /// The longest of both.
  void add(MaximumScratchPlan const& other);
  void list(pmm::StepPlan& step) const;
};

/// Of a network. `cells`: of its block in the schedule rows, else not read.
[[nodiscard]] MaximumScratchPlan maximum_scratch_of(pmm::StepPlan const& step, NetworkPlan const& plan,
                                                    pmm::CellSizes const& cells);
void reserve_maximum(pmm::WorkspacePlan& work, pmm::StepPlan const& step, NetworkPlan const& plan);
/// Lists the arrays that layers use in turn, and those that each has to itself.
void plan_maximum_arrays(pmm::StepPlan& step, NetworkPlan const& plan);

/// Memory that all layers use in turn (MaximumScratchPlan).
template<class T>
struct MaximumScratch {
  runtime::GrowingVector<T> values{"orthant::models::maximum_values"};
  runtime::GrowingVector<T> result{"orthant::models::maximum_result"};
  runtime::Vector<runtime::ValueIndex<T>> found; // grows likewise

  /// Makes it that long: before a layer is made with it.
  void reserve(MaximumScratchPlan const& plan);
};
using MaximumPlaces = runtime::GrowingVector<runtime::LocalColumn>;

/// `scratch` has its full size already; `places` is the layer's own; `grid` must outlive the aggregation. column_ids: original ids of
/// the columns of a block of the schedule pmm3d; those of owners have theirs (owned_adjacency.hpp). Throws Error if there are no ids.
/// Collective over the grid's group when it runs.
template<class T>
[[nodiscard]] std::unique_ptr<Aggregation<T>>
make_maximum_aggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan,
                         Adjacency<T> const& adjacency, runtime::Vector<std::int64_t> const& column_ids,
                         std::shared_ptr<pmm::Workspace<T>> workspace, MaximumScratch<T>& scratch,
                         MaximumPlaces& places);

} // namespace orthant::models
