#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Single numbers in memory that kernels reach: what a reduction leaves there, without anybody waiting.

#include "runtime/arrays/views.hpp"

namespace orthant::runtime {

template<class T, class Exec = DefaultExec>
using Number = Kokkos::View<T, Kokkos::LayoutRight, typename Exec::memory_space, Kokkos::MemoryUnmanaged>;

/// The i-th number of an array. Shares the memory, and does not keep it alive.
template<class T>
[[nodiscard]] Number<T> number_at(Vector<T> const& numbers, std::size_t i) {
  return Number<T>(numbers.data() + i);
}

} // namespace orthant::runtime
