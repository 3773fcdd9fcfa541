#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The library called by itself, OpenBLAS on the host and the vendor's on a device: what Orthant's dense
// products are measured against.

#include "pmm/gemm/local_gemm.hpp"

namespace orthant::cli {

/// C := op(A) op(B) in one call, no extent 0. On the host done on return, extents unchecked; on a device
/// enqueued on the default stream.
template<class T>
void bare_gemm(pmm::Transpose transpose_a, pmm::Panel<T> const& a, pmm::Transpose transpose_b,
               pmm::Panel<T> const& b, pmm::Panel<T> const& c);

extern template void bare_gemm(pmm::Transpose, pmm::Panel<float> const&, pmm::Transpose,
                               pmm::Panel<float> const&, pmm::Panel<float> const&);
extern template void bare_gemm(pmm::Transpose, pmm::Panel<double> const&, pmm::Transpose,
                               pmm::Panel<double> const&, pmm::Panel<double> const&);

} // namespace orthant::cli
