#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Loops over a row-major block for norms: over all elements, and sums over rows in an order that depends only on the shape. On host
// processors each thread has whole rows and vectorizes over columns; on a device neighboring work items have neighboring columns.

#include "pmm/kernels/host_parts.hpp"
#include "runtime/arrays/views.hpp"

#include <algorithm>
#include <cstdint>

namespace orthant::models {

/// body(row, column) for all elements, in any order. Enqueues on exec; does not fence.
template<class Body>
void for_each_element(runtime::DefaultExec const& exec, char const* label, std::int64_t num_rows,
                      std::int64_t num_columns, Body const& body) {
  if (num_rows * num_columns == 0) return;
  if constexpr (pmm::runs_on_host)
    pmm::for_each_part(exec, label, num_rows, [=](std::int64_t begin, std::int64_t end) {
      for (auto row = begin; row < end; ++row)
        for (std::int64_t column = 0; column < num_columns; ++column)
          body(row, column);
    });
  else
    Kokkos::parallel_for(
        label, Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(exec, 0, num_rows * num_columns),
        KOKKOS_LAMBDA(std::int64_t k) { body(k / num_columns, k % num_columns); });
}

/// Number of rows that are summed in the scalar type of training; sums of such blocks are added in double.
inline constexpr std::int64_t rows_of_block_sum = 256;

[[nodiscard]] inline std::int64_t num_block_sums(std::int64_t num_rows) {
  return (num_rows + rows_of_block_sum - 1) / rows_of_block_sum;
}

/// Labels of the two kernels.
struct BlockSumLabels {
  char const* blocks;
  char const* sums;
};

/// Sums over rows, for `Terms::count` sums per column:
///
///   sums(k * columns + j) := sum_i terms(i, j)[k],  k < Terms::count
///
/// `terms.add(i, j, to, stride)` adds term k to to[k * stride]. `partial` [num_block_sums() x count x columns] is borrowed memory.
/// Enqueues on exec; does not fence.
template<class T, class Terms>
void sum_over_rows(runtime::DefaultExec const& exec, BlockSumLabels const& labels, std::int64_t num_rows,
                   std::int64_t num_columns, Terms const& terms, runtime::Vector<T> const& partial,
                   runtime::Vector<T> const& sums) {
  constexpr std::int64_t count = Terms::count;
  auto const num_blocks = num_block_sums(num_rows);
  auto const stride = count * num_columns;
  if (stride == 0) return;
  T* const of_blocks = partial.data();
  T* const result = sums.data();
  if constexpr (pmm::runs_on_host) {
    pmm::for_each_part(exec, labels.blocks, num_blocks, [=](std::int64_t begin, std::int64_t end) {
      for (auto block = begin; block < end; ++block) {
        T* const to = of_blocks + block * stride;
        std::fill_n(to, stride, T{0});
        auto const last = std::min(num_rows, (block + 1) * rows_of_block_sum);
        for (auto row = block * rows_of_block_sum; row < last; ++row)
          for (std::int64_t column = 0; column < num_columns; ++column)
            terms.add(row, column, to + column, num_columns);
      }
    });
  } else {
    Kokkos::parallel_for(
        labels.blocks,
        Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(exec, 0, num_blocks * num_columns),
        KOKKOS_LAMBDA(std::int64_t k) {
          auto const block = k / num_columns;
          auto const column = k % num_columns;
          T own[count] = {};
          auto const end = (block + 1) * rows_of_block_sum;
          auto const last = end < num_rows ? end : num_rows;
          for (auto row = block * rows_of_block_sum; row < last; ++row)
            terms.add(row, column, own, 1);
          for (std::int64_t i = 0; i < count; ++i)
            of_blocks[block * stride + i * num_columns + column] = own[i];
        });
  }
  Kokkos::parallel_for(
      labels.sums, Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(exec, 0, stride),
      KOKKOS_LAMBDA(std::int64_t k) {
        double sum = 0;
        for (std::int64_t block = 0; block < num_blocks; ++block)
          sum += static_cast<double>(of_blocks[block * stride + k]);
        result[k] = static_cast<T>(sum);
      });
}

} // namespace orthant::models
