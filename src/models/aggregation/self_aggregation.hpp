#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// An aggregation that counts the vertex itself by a factor that is learned (GIN, arXiv 1810.00826, equation 4.1). R brings
// rows to where those of A^ F lie (residual.hpp):
//
//   H = A^ F + (1 + epsilon) R F          dF = A^^T dH + (1 + epsilon) R^T dH          depsilon = sum_ij dH_ij (R F)_ij

#include "models/aggregation/aggregation.hpp"
#include "models/aggregation/residual.hpp"
#include "pmm/matrix/dist_vector.hpp"
#include "runtime/arrays/growing_vector.hpp"

#include <memory>

namespace orthant::models {

using runtime::GrowingVector;

/// What such a layer is made with. Views are lent.
template<class T>
struct SelfAggregationParts {
  ResidualPath<T> path; // from aggregated() to aggregate()
  pmm::DistVector<T> epsilon, epsilon_gradient;
  runtime::Vector<T> brought;  // R F, if it does not lie where F stays
  runtime::Vector<T> moved;    // R^T dH, if it is elsewhere
  runtime::Vector<double> sum; // of one number
};

/// `of_neighbours` with the vertex itself. Its gradient of epsilon is summed over the ranks, unless gradients are addends
/// (schedule rows). Collective over the grid's group, as `of_neighbours`.
template<class T>
[[nodiscard]] std::unique_ptr<Aggregation<T>>
make_self_aggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan,
                      std::unique_ptr<Aggregation<T>> of_neighbours, SelfAggregationParts<T> parts);

} // namespace orthant::models
