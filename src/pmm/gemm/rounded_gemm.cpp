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

void multiply_piece(DefaultExec const& exec, DenseProduct<float> const& p) {
  thread_local std::vector<Bf16Number> left, right;
  local_gemm<Bf16Number, float>(exec, p.alpha, p.transpose_a, rounded(exec, p.a, left), p.transpose_b,
                                rounded(exec, p.b, right), p.beta, p.c);
}

} // namespace

void rounded_gemm(DefaultExec const& exec, DenseProduct<float> const& product) {
  auto const [m, n, k] = RoundedPiece(product.extents, product.transpose_a).extents;
  auto const multiply = [&](DenseProduct<float> const& piece) { multiply_piece(exec, piece); };
  for_each_piece_of_rows(product, m, [&, n = n, k = k](DenseProduct<float> const& rows) {
    for_each_piece_of_columns(rows, n, [&](DenseProduct<float> const& piece) {
      if (product.transpose_a == Transpose::yes)
        for_each_piece_of_terms(piece, k, multiply);
      else if (piece.extents.k == k && piece.beta == 0)
        multiply(piece);
      else // the libraries' bf16 products add to C only if A is transposed
        add_pieces_of_terms(piece, k, multiply);
    });
  });
}

} // namespace orthant::pmm::detail
