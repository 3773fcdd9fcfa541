// SPDX-License-Identifier: Apache-2.0
//
// Where Kokkos's default execution space is a device; takes the place of bare_gemm_openblas.cpp.
#include "cli/machine/bare_gemm.hpp"

#include "pmm/gemm/local_gemm_library.hpp"

namespace orthant::cli {

template<class T>
void bare_gemm(pmm::Transpose transpose_a, pmm::Panel<T> const& a, pmm::Transpose transpose_b,
               pmm::Panel<T> const& b, pmm::Panel<T> const& c) {
  pmm::detail::library_gemm<T>(runtime::DefaultExec(), 1, transpose_a, a, transpose_b, b, 0, c);
}

template void bare_gemm(pmm::Transpose, pmm::Panel<float> const&, pmm::Transpose, pmm::Panel<float> const&,
                        pmm::Panel<float> const&);
template void bare_gemm(pmm::Transpose, pmm::Panel<double> const&, pmm::Transpose, pmm::Panel<double> const&,
                        pmm::Panel<double> const&);

} // namespace orthant::cli
