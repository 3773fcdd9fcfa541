#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Dense product of one rank: C := alpha op(A) op(B) + beta C, row-major. On the host through OpenBLAS
// (local_gemm_openblas.cpp).

#include "runtime/range.hpp"
#include "runtime/views.hpp"

#include <cstdint>

namespace orthant::pmm {

enum class Transpose : std::uint8_t { no, yes };

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

/// Enqueues on exec; does not fence. Extents must agree (Error); an empty inner extent gives beta C. Where
/// beta is 0, C is not read. Cost: 2 m n k flop.
template<class T>
void local_gemm(runtime::DefaultExec const& exec, T alpha, Transpose transpose_a, Panel<T> const& a,
                Transpose transpose_b, Panel<T> const& b, T beta, Panel<T> const& c);

/// Threads that each rank's dense products use on the host. One, unless a rank has several cores to itself.
void set_gemm_threads(int num_threads);

} // namespace orthant::pmm
