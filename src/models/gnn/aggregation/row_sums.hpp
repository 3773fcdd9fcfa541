#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Sums over the rows that a rank has, for gradients of parameters of attention.

#include "pmm/edges/edge_block.hpp"
#include "pmm/kernels/host_parts.hpp"

#include <algorithm>

namespace orthant::models {

using runtime::DefaultExec;
using runtime::Vector;

/// Sums over rows: first in blocks of `rows_of_block` rows, then over the blocks in double. The order depends only on the shape.
/// `partial` is borrowed memory, [blocks x columns].
template<class T>
struct RowSums {
  std::int64_t num_rows = 0;
  std::int64_t num_columns = 0;
  std::int64_t rows_of_block = 1;
  Vector<T> partial;
  char const* label = "orthant::models::sum_attention_vectors"; // of kernels
  char const* label_of_blocks = "orthant::models::sum_attention_vectors/blocks";
};

template<class Body>
void for_each_number(DefaultExec const& exec, char const* label, std::int64_t count, Body const& body) {
  Kokkos::parallel_for(label, Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, count), body);
}

/// Sums column k % num_columns of the terms of block k / num_columns.
template<class T, class Terms>
struct SumBlockOfRows {
  Terms terms;
  std::int64_t num_rows, num_columns, rows_of_block;
  T* partial; // [num_blocks, num_columns]

  KOKKOS_FUNCTION void operator()(std::int64_t k) const {
    auto const begin = k / num_columns * rows_of_block;
    auto const end = begin + rows_of_block < num_rows ? begin + rows_of_block : num_rows;
    T sum = 0;
    for (auto row = begin; row < end; ++row)
      sum += terms(row, k % num_columns);
    partial[k] = sum;
  }
};

template<class T, class Terms>
void sum_rows(DefaultExec const& exec, RowSums<T> const& sums, Terms const& terms, T* result) {
  auto const num_rows = sums.num_rows;
  auto const num_columns = sums.num_columns;
  auto const rows_of_block = sums.rows_of_block;
  auto const num_blocks = (num_rows + rows_of_block - 1) / rows_of_block;
  T* const partial = sums.partial.data();
  if constexpr (pmm::runs_on_host)
    pmm::for_each_part(exec, sums.label_of_blocks, num_blocks, [=](std::int64_t first, std::int64_t last) {
      for (auto block = first; block < last; ++block) {
        T* const sums_of_block = partial + block * num_columns;
        std::fill_n(sums_of_block, num_columns, T{0});
        for (auto row = block * rows_of_block; row < std::min(num_rows, (block + 1) * rows_of_block); ++row)
          terms.add_row(row, sums_of_block);
      }
    });
  else
    for_each_number(exec, sums.label_of_blocks, num_blocks * num_columns,
                    SumBlockOfRows<T, Terms>{terms, num_rows, num_columns, rows_of_block, partial});
  for_each_number(
      exec, sums.label, num_columns, KOKKOS_LAMBDA(std::int64_t column) {
        double sum = 0;
        for (std::int64_t block = 0; block < num_blocks; ++block)
          sum += static_cast<double>(partial[block * num_columns + column]);
        result[column] = static_cast<T>(sum);
      });
}

} // namespace orthant::models
