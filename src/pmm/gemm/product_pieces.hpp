#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A dense product cut along its longest extent.

#include "pmm/gemm/dense_library.hpp"
#include "runtime/range.hpp"

#include <algorithm>
#include <cstdint>

namespace orthant::pmm::detail {

/// work(part) for each `length` rows of C, in order. A must not be transposed.
template<class Product, class Work>
void for_each_piece_of_rows(Product const& product, std::int64_t length, Work const& work) {
  auto part = product;
  for (std::int64_t first = 0; first < product.extents.m; first += length) {
    runtime::Range const rows{first, std::min(first + length, product.extents.m)};
    part.extents.m = rows.size();
    part.a = product.a.rows(rows);
    part.c = product.c.rows(rows);
    work(part);
  }
}

/// work(part) for each `length` terms of the sums, in order. All parts but the first are to be added to C.
template<class Product, class Work>
void for_each_piece_of_terms(Product const& product, std::int64_t length, Work const& work) {
  auto part = product;
  for (std::int64_t first = 0; first < product.extents.k; first += length) {
    runtime::Range const terms{first, std::min(first + length, product.extents.k)};
    part.extents.k = terms.size();
    part.a = product.transpose_a == Transpose::yes ? product.a.rows(terms) : product.a.columns(terms);
    part.b = product.transpose_b == Transpose::yes ? product.b.columns(terms) : product.b.rows(terms);
    work(part);
    part.beta = 1;
  }
}

} // namespace orthant::pmm::detail
