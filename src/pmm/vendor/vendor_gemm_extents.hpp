#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A row-major product as the column-major libraries see it. A row-major matrix, read column by column, is its
// transpose; so the product's operands change places and keep their transposition:
//
//   C^T [n x m] := alpha op(B)^T op(A)^T + beta C^T

#include "pmm/vendor/vendor_gemm.hpp"
#include "runtime/throw_internal.hpp"

#include <limits>
#include <string>

namespace orthant::pmm::vendor {

/// The integers of the library's call: rows n and columns m of C^T.
struct ColumnMajorExtents {
  int rows;
  int columns;
  int inner;
  int leading_of_b; // the library's first operand
  int leading_of_a; // its second
  int leading_of_c;
};

/// Throws Error where it is not positive or needs more than 32 bits.
inline int as_library_int(std::int64_t number) {
  if (number < 1 || number > std::numeric_limits<int>::max())
    runtime::throw_internal("a dense product's extent, stride or number is " + std::to_string(number),
                            std::source_location::current());
  return static_cast<int>(number);
}

/// Throws Error as as_library_int().
template<class Operand, class Result>
ColumnMajorExtents column_major_extents(GemmProduct<Operand, Result> const& product) {
  return {as_library_int(product.n),
          as_library_int(product.m),
          as_library_int(product.k),
          as_library_int(product.b.row_stride),
          as_library_int(product.a.row_stride),
          as_library_int(product.c_row_stride)};
}

} // namespace orthant::pmm::vendor
