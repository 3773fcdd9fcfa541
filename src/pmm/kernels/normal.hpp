#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Distribution and density of the normal distribution in kernels of a device (normal_host_kernel.inc: of a host).

#include "runtime/device/kokkos_compat.hpp"

#include <cmath>

namespace orthant::pmm::detail {

// C functions, because they exist in every execution space.
KOKKOS_INLINE_FUNCTION float complementary_error(float x) {
  return ::erfcf(x);
}
KOKKOS_INLINE_FUNCTION double complementary_error(double x) {
  return ::erfc(x);
}

/// Phi(z) and phi(z). erfc keeps the relative precision of Phi where Phi is small.
template<class T>
struct Normal {
  T distribution, density;
  KOKKOS_FUNCTION explicit Normal(T z)
      : distribution(T{0.5} * complementary_error(z * static_cast<T>(-0.70710678118654752440))),
        density(static_cast<T>(0.39894228040143267794) * runtime::compat::exp(z * z * T{-0.5})) {}
};

} // namespace orthant::pmm::detail
