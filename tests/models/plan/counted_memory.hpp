#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Bytes of arrays of Kokkos, and of what operator new hands out, that are in use, and the most there were:
// what a program on the host takes without what MPI, HDF5 and BLAS allocate. counted_memory.cpp replaces the
// operators.

#include <cstdint>

namespace orthant::testing {

/// From now on arrays of Kokkos count, unless Kokkos takes them from operator new, where they count anyway.
/// After Kokkos has started; arrays that are there must not be freed afterwards.
void count_kokkos_arrays();
/// Of this process, now.
[[nodiscard]] std::int64_t live_bytes();
/// The most since restart_peak().
[[nodiscard]] std::int64_t peak_bytes();
void restart_peak();

} // namespace orthant::testing
