#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The derivative of binary cross-entropy by a score z: the logistic function of z, less the label.

#include <Kokkos_Core.hpp>

namespace orthant::pmm {

[[nodiscard]] KOKKOS_INLINE_FUNCTION double pair_slope(double z, bool is_positive) {
  auto const power = ::exp(-::fabs(z)); // at most 1
  auto const sigmoid = z >= 0 ? 1 / (1 + power) : power / (1 + power);
  return sigmoid - (is_positive ? 1.0 : 0.0);
}

} // namespace orthant::pmm
