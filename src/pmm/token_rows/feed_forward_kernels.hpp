#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Device kernels of feed_forward.cpp for one element per work item, so that neighboring threads access neighboring elements.

#include "pmm/kernels/normal.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/device/kokkos_compat.hpp"

namespace orthant::pmm::detail {

template<class T>
KOKKOS_INLINE_FUNCTION T logistic(T g) {
  return T{1} / (T{1} + runtime::compat::exp(-g));
}

template<class T>
struct GeluElement {
  T const* z;
  T* y;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const { y[i] = z[i] * Normal<T>(z[i]).distribution; }
};

template<class T>
struct GeluBackwardElement {
  T const* z;
  T const* dy;
  T* dz;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    Normal<T> const at(z[i]);
    dz[i] = dy[i] * (at.distribution + z[i] * at.density);
  }
};

/// The approximation of Phi by tanh, as a logistic function: (1 + tanh(u)) / 2 = s(2 u), and its derivative.
template<class T>
struct NormalByTanh {
  T distribution, slope;
  KOKKOS_FUNCTION explicit NormalByTanh(T z) {
    constexpr auto twice_c = static_cast<T>(1.59576912160573071176); // 2 sqrt(2 / pi)
    constexpr auto cubic = static_cast<T>(0.044715);
    distribution = logistic(twice_c * (z + cubic * z * z * z));
    slope = distribution * (T{1} - distribution) * twice_c * (T{1} + 3 * cubic * z * z);
  }
};

template<class T>
struct GeluTanhElement {
  T const* z;
  T* y;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const { y[i] = z[i] * NormalByTanh<T>(z[i]).distribution; }
};

template<class T>
struct GeluTanhBackwardElement {
  T const* z;
  T const* dy;
  T* dz;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    NormalByTanh<T> const at(z[i]);
    dz[i] = dy[i] * (at.distribution + z[i] * at.slope);
  }
};

/// y of pair i.
template<class T>
struct SwigluElement {
  T const* z;
  T* y;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    auto const g = z[2 * i];
    y[i] = g * logistic(g) * z[2 * i + 1];
  }
};

template<class T>
struct SwigluBackwardElement {
  T const* z;
  T const* dy;
  T* dz;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    auto const g = z[2 * i];
    auto const u = z[2 * i + 1];
    auto const s = logistic(g);
    dz[2 * i] = dy[i] * u * s * (T{1} + g * (T{1} - s));
    dz[2 * i + 1] = dy[i] * g * s;
  }
};

} // namespace orthant::pmm::detail
