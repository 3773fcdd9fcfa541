#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Bytes that an epoch of full-graph training will communicate on a grid, from layouts alone: no rank of that
// grid need exist. Equal to what the ledgers of x, y and z then count (DESIGN 2.4).

#include "models/gcn.hpp"

#include <array>

namespace orthant::models {

/// Bytes over x, y and z, summed over the grid's ranks, of one epoch after the first (A^ F0 is there),
/// without evaluation. Softmax loss; native wire. Residuals travel over the whole group, which is not counted
/// here: how much stays at home depends on where the permutations put each vertex. T is the scalar of
/// training.
template<class T>
[[nodiscard]] std::array<std::int64_t, 3>
predict_epoch_bytes(pmm::GridShape const& shape, GcnPlan const& plan, GcnSettings const& settings);

} // namespace orthant::models
