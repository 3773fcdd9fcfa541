#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Peak arithmetic of a rank's processors or device: multiply-adds in registers, and large square products by a library called directly.
// The speed of a training is compared with these.

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

// Direct calls of libraries: on the host OpenBLAS and the other dense libraries, on a device the vendor's. Orthant's dense products are
// compared with them.

/// Names of the libraries as in tables (pmm/gemm/gemm_choice.hpp); on a device only the vendor's.
[[nodiscard]] std::vector<std::string_view> bare_libraries();

/// Name of the library that local_gemm() uses for a product.
template<class T>
[[nodiscard]] std::string_view chosen_library(pmm::Transpose transpose_a, pmm::Transpose transpose_b,
                                              pmm::GemmExtents const& extents);

/// C := op(A) op(B) in one call. No extent may be 0. Returns false if the library does not support this product. On the host the product
/// is complete on return, and extents are not checked; on a device it is enqueued on the default stream.
template<class T>
bool bare_gemm(std::string_view library, pmm::Transpose transpose_a, pmm::Panel<T> const& a,
               pmm::Transpose transpose_b, pmm::Panel<T> const& b, pmm::Panel<T> const& c);

/// flop / s of all ranks together, which multiply at the same time: the best of `num_repeats` runs after a warm-up. Collective.
template<class T>
[[nodiscard]] double measure_gemm_peak(runtime::Communicator const& world, std::int64_t size,
                                       std::int64_t num_repeats);

} // namespace orthant::cli
