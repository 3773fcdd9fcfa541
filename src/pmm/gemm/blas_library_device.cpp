// SPDX-License-Identifier: Apache-2.0
//
// find_blas_library() if Kokkos's default execution space is a device: products use the vendor's library.
#include "pmm/gemm/blas_library.hpp"

#include "runtime/arrays/views.hpp"

namespace orthant::pmm {

BlasLibrary find_blas_library() {
  auto const is_hip = std::string_view(runtime::DefaultExec::name()) == "HIP";
  return {is_hip ? "hipBLAS" : "cuBLAS", "", false};
}

} // namespace orthant::pmm
