#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Powers of A^ in place of A^ U (TAGConv, arXiv 1710.10370, equation 3), by Horner's rule. U has the blocks U_k = F W_k side by side,
// which is why rows must be whole:
//
//   forward     Y := U_K     Y := A^ Y + U_k, k = K-1 .. 0     Q = Y
//   backward    dU_0 = dQ    dU_k = A^^T dU_{k-1}, k = 1 .. K

#include "models/gnn/layers/aggregation.hpp"

#include <memory>

namespace orthant::models {

/// Wraps the aggregation `of_neighbours`, which multiplies by A^ once. `operand`: borrowed memory, as long as the layer's output.
/// backward() overwrites the gradient that it reads. Runs are collective over the grid's group.
template<class T>
[[nodiscard]] std::unique_ptr<Aggregation<T>>
make_power_aggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan,
                       std::unique_ptr<Aggregation<T>> of_neighbours, runtime::Vector<T> operand);

} // namespace orthant::models
