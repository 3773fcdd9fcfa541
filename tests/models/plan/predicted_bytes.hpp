#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Bytes that the ledgers of x, y and z count in an epoch after the first, by the lists of all ranks of a grid.
// Residuals travel over the whole group, which is not counted here. Softmax loss.

#include "models/gnn/plan/network_step.hpp"

#include <array>

namespace orthant::testing {

/// T is the scalar of training.
template<class T>
std::array<std::int64_t, 3> predicted_bytes(pmm::GridShape const& shape, models::NetworkPlan const& plan,
                                            models::NetworkSettings const& settings) {
  models::NetworkEpochTraits traits;
  traits.keeps_first_aggregate = keeps_first_aggregate(plan) && settings.dropout == 0;
  std::array<std::int64_t, 3> sum{};
  for (int rank = 0; rank < shape.num_ranks(); ++rank) {
    pmm::StepPlan step(shape, pmm::coordinates_of(shape, rank), sizeof(T));
    plan_epoch(step, plan, settings, traits);
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] += pmm::bytes_along(step, name_of(pmm::spatial_axes[i])).counted;
  }
  return sum;
}

} // namespace orthant::testing
