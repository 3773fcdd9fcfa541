// SPDX-License-Identifier: Apache-2.0
#include "pmm/gemm/dense_library.hpp"

#include <algorithm>
#include <vector>

namespace orthant::pmm::detail {
namespace {

using runtime::Bf16Number;
using runtime::DefaultExec;
using runtime::Fp16Number;
using runtime::Range;

constexpr auto tile_length = std::int64_t{256};

/// Calls work(range) for pieces of [0, length) in order; once with an empty range if the length is 0.
template<class Work>
void for_each_piece(std::int64_t length, Work const& work) {
  std::int64_t begin = 0;
  do {
    auto const end = std::min(begin + tile_length, length);
    work(Range{begin, end});
    begin = end;
  } while (begin < length);
}

/// Memory of one tile in fp32.
class Tile {
 public:
  [[nodiscard]] Panel<float> panel(std::int64_t num_rows, std::int64_t num_columns) {
    numbers_.resize(static_cast<std::size_t>(tile_length * tile_length));
    Panel<float> panel;
    panel.data = numbers_.data();
    panel.num_rows = num_rows;
    panel.num_columns = num_columns;
    panel.row_stride = num_columns;
    return panel;
  }

  template<class Number>
  [[nodiscard]] Panel<float> converted(Panel<Number> const& from) {
    auto const to = panel(from.num_rows, from.num_columns);
    for (std::int64_t i = 0; i < to.num_rows; ++i)
      for (std::int64_t j = 0; j < to.num_columns; ++j)
        to.data[i * to.row_stride + j] = from.data[i * from.row_stride + j];
    return to;
  }

 private:
  std::vector<float> numbers_;
};

struct Tiles {
  Tile a, b, sums;
};

/// Returns the part of A that contains these rows and columns of op(A).
template<class Number>
Panel<Number> part_of(Panel<Number> const& a, Transpose transpose, Range rows, Range columns) {
  return transpose == Transpose::yes ? a.rows(columns).columns(rows) : a.rows(rows).columns(columns);
}

/// C := round(S + beta C). C is not read if beta is 0.
template<class Number>
void round_into(Panel<float> const& sums, float beta, Panel<Number> const& c) {
  for (std::int64_t i = 0; i < c.num_rows; ++i)
    for (std::int64_t j = 0; j < c.num_columns; ++j) {
      auto const sum = sums.data[i * sums.row_stride + j];
      auto& number = c.data[i * c.row_stride + j];
      number = Number(beta == 0 ? sum : sum + beta * number);
    }
}

} // namespace

template<class Operand, class Result>
void tiled_gemm(DefaultExec const& exec, float alpha, Transpose transpose_a, Panel<Operand> const& a,
                Transpose transpose_b, Panel<Operand> const& b, float beta, Panel<Result> const& c) {
  auto const extents = gemm_extents(transpose_a, a, transpose_b, b, c);
  if (extents.m == 0 || extents.n == 0) return;
  runtime::compat::fence(exec, "orthant::pmm::tiled_gemm/tiles are converted on the host");
  thread_local Tiles tiles;

  // S[rows,columns] := kept S + alpha op(A)[rows,inner] op(B)[inner,columns], piece by piece of the inner extent
  auto const add_products = [&](Range rows, Range columns, float kept, Panel<float> const& sums) {
    for_each_piece(extents.k, [&](Range inner) {
      auto const left = tiles.a.converted(part_of(a, transpose_a, rows, inner));
      auto const right = tiles.b.converted(part_of(b, transpose_b, inner, columns));
      local_gemm<float>(exec, alpha, transpose_a, left, transpose_b, right, kept, sums, GemmMath::fp32);
      kept = 1;
    });
  };
  for_each_piece(extents.m, [&](Range rows) {
    for_each_piece(extents.n, [&](Range columns) {
      auto const result = c.rows(rows).columns(columns);
      if constexpr (runtime::is_16_bit<Result>) {
        auto const sums = tiles.sums.panel(rows.size(), columns.size());
        add_products(rows, columns, 0, sums);
        round_into(sums, beta, result);
      } else {
        add_products(rows, columns, beta, result);
      }
    });
  });
}

template void tiled_gemm(DefaultExec const&, float, Transpose, Panel<Bf16Number> const&, Transpose,
                         Panel<Bf16Number> const&, float, Panel<float> const&);
template void tiled_gemm(DefaultExec const&, float, Transpose, Panel<Bf16Number> const&, Transpose,
                         Panel<Bf16Number> const&, float, Panel<Bf16Number> const&);
template void tiled_gemm(DefaultExec const&, float, Transpose, Panel<Fp16Number> const&, Transpose,
                         Panel<Fp16Number> const&, float, Panel<float> const&);
template void tiled_gemm(DefaultExec const&, float, Transpose, Panel<Fp16Number> const&, Transpose,
                         Panel<Fp16Number> const&, float, Panel<Fp16Number> const&);

} // namespace orthant::pmm::detail
