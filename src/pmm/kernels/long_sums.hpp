#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Sums over the rows of a tall block on host processors. A single-precision sum of ones stops growing at 2^24 and loses digits long
// before. Rows are therefore summed in blocks: within a block in the precision of the numbers, which keeps the inner loop fast, and over
// the blocks in double.

#include <cstdint>

namespace orthant::pmm {

/// True if a sum of `num_terms` terms may stop growing when a library adds them one by one in T: a float does at 2^24.
template<class T>
[[nodiscard]] constexpr bool may_stall(std::int64_t num_terms) {
  return sizeof(T) == sizeof(float) && num_terms >= std::int64_t{1} << 24;
}

/// Number of columns that are summed at a time; their sums fit in the L1 cache.
inline constexpr std::int64_t columns_of_long_sums = 512;

/// sums(j) := sum over num_rows rows of column j, for `width` columns, at most columns_of_long_sums. add_rows(begin, end, partial) must
/// add rows [begin, end) to partial[0 .. width), in order. The order of additions depends only on the number of rows.
template<class T, class AddRows>
inline void sum_rows_in_blocks(std::int64_t num_rows, std::int64_t width, T* sums, AddRows const& add_rows) {
  constexpr std::int64_t rows_of_block = 4096; // only 1/4096 of the additions are in double
  double totals[columns_of_long_sums];
  T partial[columns_of_long_sums];
  for (std::int64_t j = 0; j < width; ++j)
    totals[j] = 0;
  for (std::int64_t begin = 0; begin < num_rows; begin += rows_of_block) {
    auto const end = num_rows - begin < rows_of_block ? num_rows : begin + rows_of_block;
    for (std::int64_t j = 0; j < width; ++j)
      partial[j] = 0;
    add_rows(begin, end, partial);
    for (std::int64_t j = 0; j < width; ++j)
      totals[j] += static_cast<double>(partial[j]);
  }
  for (std::int64_t j = 0; j < width; ++j)
    sums[j] = static_cast<T>(totals[j]);
}

} // namespace orthant::pmm
