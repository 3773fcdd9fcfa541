#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Dense product of one rank, row-major:
//
//   C := alpha op(A) op(B) + beta C
//
// On the host it goes through the library that a table names for the processor and the shape (gemm_choice.hpp), on a
// device through the vendor's library (local_gemm_device.cpp). Operands of 16 bits are multiplied and summed in fp32.
// A host without a library for them converts them tile by tile first (tiled_gemm.cpp).

#include "pmm/kernels/packs.hpp"
#include "pmm/vendor/vendor_gemm.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/formats.hpp"
#include "runtime/range.hpp"

#include <cstdint>
#include <type_traits>

namespace orthant::pmm {

/// A matrix in memory, rows `row_stride` numbers apart: a part of the columns of a larger one, too.
template<class T>
struct Panel {
  T* data = nullptr;
  std::int64_t num_rows = 0;
  std::int64_t num_columns = 0;
  std::int64_t row_stride = 0;

  Panel() = default;
  Panel(runtime::Matrix<T> const& matrix) // NOLINT: implicit on purpose
      : data(matrix.data()),
        num_rows(static_cast<std::int64_t>(matrix.extent(0))),
        num_columns(static_cast<std::int64_t>(matrix.extent(1))),
        row_stride(static_cast<std::int64_t>(matrix.extent(1))) {}

  [[nodiscard]] Panel rows(runtime::Range range) const {
    auto part = *this;
    part.data += range.begin * row_stride;
    part.num_rows = range.size();
    return part;
  }
  [[nodiscard]] Panel columns(runtime::Range range) const {
    auto part = *this;
    part.data += range.begin;
    part.num_columns = range.size();
    return part;
  }
};

/// C is m x n, summed over k.
struct GemmExtents {
  std::int64_t m, n, k;
};

/// Enqueues on exec; does not fence. Extents must agree (Error); an empty inner extent gives beta C. C is not
/// read if beta is 0. On a device, a stream's first product and the first A^T B of a shape wait and allocate, and with
/// GemmMath::bf16 the first operands of a size: copies of 2 bytes a number are kept.
///
/// Operand: float, double, runtime::Bf16Number or runtime::Fp16Number. Result: the same, or float for operands
/// of 16 bits. A result of 16 bits is rounded once, and
///
///   |error|  <=  k eps sum_l |a_il| |b_lj|  +  u |c_ij|
///
/// with eps = 2^-23 for sums in fp32 (the products of 16-bit operands are exact in fp32), and u = 2^-8 for bf16,
/// 2^-11 for fp16 (at least 2^-25 in all) and 0 for other results. Processors with matrix units for bf16 take bf16
/// numbers and products below 2^-126 for 0. Cost: 2 m n k flop.
template<class Operand, class Result = Operand>
void local_gemm(runtime::DefaultExec const& exec, runtime::SumOf<Result> alpha, Transpose transpose_a,
                Panel<Operand> const& a, Transpose transpose_b, Panel<Operand> const& b,
                runtime::SumOf<Result> beta, std::type_identity_t<Panel<Result>> const& c);

/// What fp32 products multiply in, for the whole program: chosen once, before the first product. Throws Error
/// if this build does not have that arithmetic.
void set_gemm_math(GemmMath math);

[[nodiscard]] GemmMath chosen_gemm_math();

/// fp32 everywhere; the others on CUDA devices, bf16 of compute capability 8.0 or newer.
[[nodiscard]] bool has_gemm_math(GemmMath math);

/// Threads that each rank's dense products use on the host. One, unless a rank has several cores to itself.
void set_gemm_threads(int num_threads);

namespace detail {

/// Extents of C [m x n] := op(A) [m x k] op(B) [k x n]. Throws Error if the operands disagree.
template<class Operand, class Result>
GemmExtents gemm_extents(Transpose transpose_a, Panel<Operand> const& a, Transpose transpose_b,
                         Panel<Operand> const& b, Panel<Result> const& c) {
  auto const m = transpose_a == Transpose::yes ? a.num_columns : a.num_rows;
  auto const k = transpose_a == Transpose::yes ? a.num_rows : a.num_columns;
  auto const k_of_b = transpose_b == Transpose::yes ? b.num_columns : b.num_rows;
  auto const n = transpose_b == Transpose::yes ? b.num_rows : b.num_columns;
  ORTHANT_REQUIRE(m == c.num_rows && k == k_of_b && n == c.num_columns, "C ", c.num_rows, " x ",
                  c.num_columns, " := ", m, " x ", k, " times ", k_of_b, " x ", n);
  return {m, n, k};
}

} // namespace detail

} // namespace orthant::pmm

namespace orthant::pmm::detail {

// The vendor's library for dense products on a device, and when a product is handed to it whole or in slabs
// (gemm_slabs.hpp): by measurement at the first product of a shape. Defined in device builds only
// (local_gemm_device.cpp).

/// One call of the library, with the arithmetic of set_gemm_math(): what local_gemm() is measured against.
/// No extent may be 0; else as local_gemm().
template<class T>
void library_gemm(runtime::DefaultExec const& exec, T alpha, Transpose transpose_a, Panel<T> const& a,
                  Transpose transpose_b, Panel<T> const& b, T beta, Panel<T> const& c);

// Panels of a device copied to panels of other numbers or rows further apart.

/// to(i, j) := from(i, j), four columns a work item.
template<class From, class To>
struct CopyPanel {
  From const* from;
  To* to;
  std::int64_t from_stride, to_stride;
  std::int64_t num_columns;
  Divisor packs_per_row;

  KOKKOS_FUNCTION void operator()(std::int64_t index) const {
    auto const row = packs_per_row.quotient(index);
    auto const column = (index - row * packs_per_row.value()) * pack_size;
    auto const count = num_columns - column;
    PackedArray<From const> const source(from + row * from_stride);
    PackedArray<To>(to + row * to_stride).store(column, count, source.load(column, count));
  }
};

/// As many rows and columns of both. Enqueues on exec; does not fence.
template<class From, class To>
void copy_panel(runtime::DefaultExec const& exec, char const* label, Panel<From> const& from,
                Panel<To> const& to) {
  auto const packs_per_row = (from.num_columns + pack_size - 1) / pack_size;
  Kokkos::parallel_for(
      label, Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(exec, 0, from.num_rows * packs_per_row),
      CopyPanel<From, To>{from.data, to.data, from.row_stride, to.row_stride, from.num_columns,
                          Divisor(packs_per_row)});
}

} // namespace orthant::pmm::detail
