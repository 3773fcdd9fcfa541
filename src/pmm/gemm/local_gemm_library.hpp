#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The vendor's library for dense products on a device, and when a product is handed to it whole or in slabs
// (gemm_slabs.hpp): by measurement at the first product of a shape. Defined in device builds only
// (local_gemm_device.cpp).

#include "pmm/gemm/local_gemm.hpp"

namespace orthant::pmm::detail {

/// One call of the library, with the arithmetic of set_gemm_math(): what local_gemm() is measured against.
/// No extent may be 0; else as local_gemm().
template<class T>
void library_gemm(runtime::DefaultExec const& exec, T alpha, Transpose transpose_a, Panel<T> const& a,
                  Transpose transpose_b, Panel<T> const& b, T beta, Panel<T> const& c);

} // namespace orthant::pmm::detail
