// SPDX-License-Identifier: Apache-2.0
#include "pmm/gemm/dense_library.hpp"

#include <vector>

namespace orthant::pmm::detail {
namespace {

using runtime::Bf16Number;
using runtime::DefaultExec;

/// A rounded copy of `from`, in memory that the next call with the same `numbers` overwrites.
Panel<Bf16Number> rounded(DefaultExec const& exec, Panel<float> const& from,
                          std::vector<Bf16Number>& numbers) {
  auto const width = from.num_columns;
  if (auto const count = static_cast<std::size_t>(from.num_rows * width); numbers.size() < count)
    numbers.resize(count);
  Panel<Bf16Number> const to(numbers.data(), from.num_rows, width);
  Kokkos::parallel_for(
      "orthant::pmm::local_gemm/rounding",
      Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, from.num_rows),
      [narrow = runtime::best_number16_arrays<Bf16Number>().narrow, from, to](std::int64_t row) {
        narrow(from.data + row * from.row_stride, to.data + row * to.row_stride,
               static_cast<std::size_t>(to.num_columns));
      });
  return to;
}

struct Copies {
  std::vector<Bf16Number> left, right;
};

} // namespace

void rounded_gemm(DefaultExec const& exec, DenseProduct<float> const& product) {
  thread_local Copies copies;
  auto const [m, n, k] = RoundedPiece(product.extents, product.transpose_a).extents;
  auto const multiply = [&](Panel<Bf16Number> const& left, DenseProduct<float> const& p) {
    local_gemm<Bf16Number, float>(exec, p.alpha, p.transpose_a, left, p.transpose_b,
                                  rounded(exec, p.b, copies.right), p.beta, p.c);
  };
  auto const multiply_piece = [&](DenseProduct<float> const& p) {
    multiply(rounded(exec, p.a, copies.left), p);
  };
  for_each_piece_of_rows(product, m, [&, n = n, k = k](DenseProduct<float> const& rows) {
    auto const is_whole_sum = product.transpose_a == Transpose::no && rows.extents.k == k && rows.beta == 0;
    auto const left = is_whole_sum ? rounded(exec, rows.a, copies.left) : Panel<Bf16Number>();
    for_each_piece_of_columns(rows, n, [&](DenseProduct<float> const& piece) {
      if (is_whole_sum)
        multiply(left, piece);
      else if (product.transpose_a == Transpose::yes)
        for_each_piece_of_terms(piece, k, multiply_piece);
      else // the libraries' bf16 products add to C only if A is transposed
        add_pieces_of_terms(piece, k, multiply_piece);
    });
  });
}

} // namespace orthant::pmm::detail
