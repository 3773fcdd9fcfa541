#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Multiply-adds on all units of a rank's processors, or of its device.
//
// The speed of a large square product, of the library that is chosen for it, called by itself: what the speed of a
// training is compared with.

#include "pmm/gemm/local_gemm.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace orthant::cli {

/// Enqueues a few milliseconds of multiply-adds on exec. Returns their number of floating-point operations.
template<class T>
std::int64_t run_fma_work(runtime::DefaultExec const& exec);

extern template std::int64_t run_fma_work<float>(runtime::DefaultExec const&);
extern template std::int64_t run_fma_work<double>(runtime::DefaultExec const&);

// The libraries called by themselves: on the host OpenBLAS and those beside it, on a device the vendor's. What
// Orthant's dense products are measured against.

/// Their names as tables have them (pmm/gemm/gemm_choice.hpp); on a device the vendor's alone.
[[nodiscard]] std::vector<std::string_view> bare_libraries();

/// The name of the one that local_gemm() takes for a product.
template<class T>
[[nodiscard]] std::string_view chosen_library(pmm::Transpose transpose_a, pmm::Transpose transpose_b,
                                              pmm::GemmExtents const& extents);

/// C := op(A) op(B) in one call, no extent 0; false if the library does not have that product. On the host done on
/// return, extents unchecked; on a device enqueued on the default stream.
template<class T>
bool bare_gemm(std::string_view library, pmm::Transpose transpose_a, pmm::Panel<T> const& a,
               pmm::Transpose transpose_b, pmm::Panel<T> const& b, pmm::Panel<T> const& c);

/// flop / s of all ranks together, which multiply at once: the best of `num_repeats`, behind one that warms up.
/// Collective.
template<class T>
[[nodiscard]] double measure_gemm_peak(runtime::Communicator const& world, std::int64_t size,
                                       std::int64_t num_repeats);

} // namespace orthant::cli
