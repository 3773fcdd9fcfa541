#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A dense product cut along its longest extent, and the transpose of the operand that all pieces share.

#include "pmm/gemm/dense_library.hpp"
#include "runtime/range.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace orthant::pmm::detail {

/// work(range) for each `length` of `total`, in order.
template<class Work>
void for_each_range(std::int64_t total, std::int64_t length, Work const& work) {
  for (std::int64_t first = 0; first < total; first += length)
    work(runtime::Range{first, std::min(first + length, total)});
}

/// work(part) for each `length` rows of C, in order.
template<class Product, class Work>
void for_each_piece_of_rows(Product const& product, std::int64_t length, Work const& work) {
  for_each_range(product.extents.m, length, [&](runtime::Range rows) {
    auto part = product;
    part.extents.m = rows.size();
    part.a = product.transpose_a == Transpose::yes ? product.a.columns(rows) : product.a.rows(rows);
    part.c = product.c.rows(rows);
    work(part);
  });
}

/// work(part) for each `length` columns of C, in order.
template<class Product, class Work>
void for_each_piece_of_columns(Product const& product, std::int64_t length, Work const& work) {
  for_each_range(product.extents.n, length, [&](runtime::Range columns) {
    auto part = product;
    part.extents.n = columns.size();
    part.b = product.transpose_b == Transpose::yes ? product.b.rows(columns) : product.b.columns(columns);
    part.c = product.c.columns(columns);
    work(part);
  });
}

/// work(part) for each `length` terms of the sums, in order. All parts but the first are to be added to C.
template<class Product, class Work>
void for_each_piece_of_terms(Product const& product, std::int64_t length, Work const& work) {
  for_each_range(product.extents.k, length, [&](runtime::Range terms) {
    auto part = product;
    part.extents.k = terms.size();
    part.a = product.transpose_a == Transpose::yes ? product.a.rows(terms) : product.a.columns(terms);
    part.b = product.transpose_b == Transpose::yes ? product.b.columns(terms) : product.b.rows(terms);
    if (terms.begin > 0) part.beta = 1;
    work(part);
  });
}

/// C := (the sum over pieces of `length` terms of what multiply(piece) writes) + beta C. A library that adds term by term to
/// a float, which ends at 2^24 ones, so adds few of them.
template<class T, class Multiply>
void add_pieces_of_terms(DenseProduct<T> const& p, std::int64_t length, Multiply const& multiply) {
  thread_local std::vector<T> numbers;
  numbers.resize(static_cast<std::size_t>(p.extents.m * p.extents.n));
  for_each_piece_of_terms(p, length, [&](DenseProduct<T> piece) {
    auto const beta = piece.beta;
    piece.beta = 0;
    piece.c.data = numbers.data();
    piece.c.row_stride = p.extents.n;
    multiply(piece);
    for (std::int64_t i = 0; i < p.c.num_rows; ++i) {
      auto* const sums = p.c.data + i * p.c.row_stride;
      auto const* const addends = numbers.data() + i * p.extents.n;
      for (std::int64_t j = 0; j < p.c.num_columns; ++j)
        sums[j] = addends[j] + (beta == 0 ? T{0} : beta * sums[j]);
    }
  });
}

/// The transpose of a small matrix, in memory that the next call uses again.
template<class T>
Panel<T> transposed(Panel<T> const& b) {
  thread_local std::vector<T> numbers;
  numbers.resize(static_cast<std::size_t>(b.num_rows * b.num_columns));
  Panel<T> result;
  result.data = numbers.data();
  result.num_rows = b.num_columns;
  result.num_columns = b.num_rows;
  result.row_stride = b.num_rows;
  for (std::int64_t i = 0; i < b.num_rows; ++i)
    for (std::int64_t j = 0; j < b.num_columns; ++j)
      result.data[j * result.row_stride + i] = b.data[i * b.row_stride + j];
  return result;
}

} // namespace orthant::pmm::detail
