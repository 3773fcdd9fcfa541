#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Dense product of one rank, row-major:
//
//   C := alpha op(A) op(B) + beta C
//
// A host uses the library that a table lists for the processor and the shape (gemm_choice.hpp). A device uses the vendor's library
// (local_gemm_device.cpp). 16-bit operands are multiplied and summed in fp32. A host without a library for them first converts them to
// fp32 tile by tile (tiled_gemm.cpp). With GemmMath::bf16, fp32 operands are rounded to bf16 (rounded_gemm.cpp).

#include "pmm/kernels/packs.hpp"
#include "pmm/vendor/vendor_gemm.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/formats.hpp"
#include "runtime/range.hpp"

#include <cstdint>
#include <type_traits>

namespace orthant::pmm {

/// A row-major matrix in memory whose rows begin `row_stride` numbers apart. Can be a part of the columns of a larger matrix.
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

  /// Rows one after the other, without gaps.
  Panel(T* numbers, std::int64_t rows, std::int64_t columns)
      : data(numbers),
        num_rows(rows),
        num_columns(columns),
        row_stride(columns) {}

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

/// Extents of a product: C is m x n, summed over k.
struct GemmExtents {
  std::int64_t m, n, k;
};

/// Sets the format in which fp32 products multiply, for the whole program. Throws Error if this build does not support the format. The
/// first product of a device fixes it: later calls throw Error there.
void set_gemm_math(GemmMath math);

[[nodiscard]] GemmMath chosen_gemm_math();

/// True for fp32 on all platforms, for bf16 on hosts, for tf32 on CUDA devices, and for bf16 on CUDA devices of compute capability 8.0 or
/// newer.
[[nodiscard]] bool has_gemm_math(GemmMath math);

/// C := alpha op(A) op(B) + beta C. Enqueues on exec; does not fence. Throws Error unless the extents agree. An empty inner extent gives
/// beta C. C is not read if beta is 0. On a device, the first product of a stream and the first A^T B of a shape wait and allocate. With
/// GemmMath::bf16, the first operand of each size also does: rounded copies, 2 bytes per number, are kept.
///
/// Operand: float, double, runtime::Bf16Number or runtime::Fp16Number. Result: the same type, or float for 16-bit operands. A 16-bit
/// result is rounded once, and
///
///   |error|  <=  k eps sum_l |a_il| |b_lj|  +  u |c_ij|
///
/// with eps = 2^-23 for sums in fp32 (the products of 16-bit operands are exact in fp32), and u = 2^-8 for bf16,
/// 2^-11 for fp16 (an absolute error of at least 2^-25) and 0 for other results. Processors with matrix units for bf16 treat bf16
/// numbers and products below 2^-126 as 0. `math` rounds fp32 operands before that; products whose results select or scale others take
/// GemmMath::fp32. Cost: 2 m n k flop.
template<class Operand, class Result = Operand>
void local_gemm(runtime::DefaultExec const& exec, runtime::SumOf<Result> alpha, Transpose transpose_a,
                Panel<Operand> const& a, Transpose transpose_b, Panel<Operand> const& b,
                runtime::SumOf<Result> beta, std::type_identity_t<Panel<Result>> const& c,
                GemmMath math = chosen_gemm_math());

/// Sets the number of threads that the dense products of each rank use on the host. Use one, unless a rank has several cores of its own.
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

// Direct calls of the vendor's library on a device. local_gemm() itself multiplies in one call of the library or in slabs
// (gemm_slabs.hpp), whichever was faster at the first product of a shape. Defined in device builds only (local_gemm_device.cpp).

/// C := alpha op(A) op(B) + beta C by one call of the library. No extent may be 0. Enqueues on exec;
/// does not fence. Throws Error unless the extents agree. For comparisons with local_gemm(), and for products that must have the same bits
/// on all ranks.
template<class T>
void library_gemm(runtime::DefaultExec const& exec, T alpha, Transpose transpose_a, Panel<T> const& a,
                  Transpose transpose_b, Panel<T> const& b, T beta, Panel<T> const& c,
                  GemmMath math = chosen_gemm_math());

// Copies of panels, to another number type or another stride of rows.

/// to(i, j) := from(i, j), four columns per work item.
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

} // namespace orthant::pmm::detail

namespace orthant::pmm {

/// to := from. Both must have the same numbers of rows and columns. Enqueues on exec; does not fence.
template<class From, class To>
void copy_panel(runtime::DefaultExec const& exec, char const* label, Panel<From> const& from,
                Panel<To> const& to) {
  auto const packs_per_row = (from.num_columns + pack_size - 1) / pack_size;
  Kokkos::parallel_for(
      label, Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(exec, 0, from.num_rows * packs_per_row),
      detail::CopyPanel<From, To>{from.data, to.data, from.row_stride, to.row_stride, from.num_columns,
                                  Divisor(packs_per_row)});
}

} // namespace orthant::pmm
