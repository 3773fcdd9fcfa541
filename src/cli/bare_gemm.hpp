#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// OpenBLAS called by itself: what Orthant's dense products are measured against.

#include "pmm/local_gemm.hpp"

namespace orthant::cli {

/// C := op(A) op(B) on the host, extents unchecked; done on return.
template<class T>
void bare_gemm(pmm::Transpose transpose_a, pmm::Panel<T> const& a, pmm::Transpose transpose_b,
               pmm::Panel<T> const& b, pmm::Panel<T> const& c);

extern template void bare_gemm(pmm::Transpose, pmm::Panel<float> const&, pmm::Transpose,
                               pmm::Panel<float> const&, pmm::Panel<float> const&);
extern template void bare_gemm(pmm::Transpose, pmm::Panel<double> const&, pmm::Transpose,
                               pmm::Panel<double> const&, pmm::Panel<double> const&);

} // namespace orthant::cli
