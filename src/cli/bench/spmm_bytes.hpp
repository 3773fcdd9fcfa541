#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a sparse product moves, by count. Gathered: a row of B for every non-zero, what a memory without
// caches would deliver. Compulsory: the matrix, B and C once, what no cache can save. The truth lies between.

#include "pmm/spmm/local_spmm.hpp"

#include <cstdint>

namespace orthant::cli {

struct SpmmBytes {
  double gathered = 0;
  double compulsory = 0;
};

/// `operand_bytes`: of a number of B, if that is not T.
template<class T>
[[nodiscard]] SpmmBytes bytes_of(pmm::SparseBlock<T> const& block, std::int64_t width,
                                 std::int64_t operand_bytes = sizeof(T),
                                 std::int64_t result_bytes = sizeof(T)) {
  auto const& csr = block.csr;
  auto const row_of_b = static_cast<double>(width * operand_bytes);
  auto const row_of_c = static_cast<double>(width * result_bytes);
  auto const matrix =
      csr.row_offsets.extent(0) * sizeof(runtime::Offset) +
      csr.columns.extent(0) * sizeof(runtime::LocalColumn) +
      (csr.values.extent(0) + block.row_scale.extent(0) + block.column_scale.extent(0)) * sizeof(T);
  return {static_cast<double>(csr.num_nonzeros()) * row_of_b,
          static_cast<double>(matrix) + static_cast<double>(csr.num_rows) * row_of_c +
              static_cast<double>(csr.num_columns) * row_of_b};
}

} // namespace orthant::cli
