#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The maximum of the neighbours in place of A^ F (propagation/maximum_step.hpp). The backward pass reads which neighbours the
// maxima of the last forward pass are of.

#include "models/aggregation/aggregation.hpp"
#include "models/aggregation/maximum_arrays.hpp"
#include "runtime/arrays/growing_vector.hpp"

#include <memory>

namespace orthant::models {

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
/// the columns of a block of the schedule pmm3d; those of owners have theirs (edge_operands.hpp). Throws Error if there are no ids.
/// Collective over the grid's group when it runs.
template<class T>
[[nodiscard]] std::unique_ptr<Aggregation<T>>
make_maximum_aggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan,
                         Adjacency<T> const& adjacency, runtime::Vector<std::int64_t> const& column_ids,
                         std::shared_ptr<pmm::Workspace<T>> workspace, MaximumScratch<T>& scratch,
                         MaximumPlaces& places);

} // namespace orthant::models
