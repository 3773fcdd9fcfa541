#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The host's product of 16-bit operands, by the fp32 product of tiles that are converted first:
//
//   S      := alpha sum_l op(A)[i,l] op(B)[l,j]       over tiles l, in fp32
//   C[i,j] := round(S + beta C[i,j])
//
// Only some builds of OpenBLAS multiply 16-bit numbers themselves (sbgemm, shgemm), so Orthant does not rely on
// them. A number of A is converted n / 256 times and a number of B m / 256 times, beside the 2 n and 2 m flop that
// it takes part in. The tiles take 768 KiB.

#include "pmm/gemm/local_gemm.hpp"

namespace orthant::pmm::detail {

/// As local_gemm(), for operands of 16 bits. Host only.
template<class Operand, class Result>
void tiled_gemm(runtime::DefaultExec const& exec, float alpha, Transpose transpose_a, Panel<Operand> const& a,
                Transpose transpose_b, Panel<Operand> const& b, float beta, Panel<Result> const& c);

} // namespace orthant::pmm::detail
