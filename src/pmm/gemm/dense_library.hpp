#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Interface of the libraries that multiply dense matrices on a host, and the tools that they share. Each library is in one source file:
//
//   openblas   OpenBLAS or another BLAS                            fp32, fp64      always available
//   onednn     oneDNN, if CMake found it                           fp32, bf16
//   orthant    Orthant's own kernels (pmm/tall_gemm), on x86-64    fp32 times small matrices, sums into small ones
//
// local_gemm() uses the library that gemm_choice.hpp selects for a product. Host only.

#include "pmm/gemm/gemm_choice.hpp"
#include "pmm/gemm/local_gemm.hpp"
#include "runtime/range.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::pmm {

/// C := alpha op(A) op(B) + beta C, with the operand and result types of local_gemm().
template<class Operand, class Result = Operand>
struct DenseProduct {
  GemmExtents extents; // must not be 0
  runtime::SumOf<Result> alpha = 1;
  Transpose transpose_a = Transpose::no;
  Panel<Operand> a;
  Transpose transpose_b = Transpose::no;
  Panel<Operand> b;
  runtime::SumOf<Result> beta = 0;
  Panel<Result> c; // not read if beta is 0
};

/// A library for dense products. multiply() returns true after C is written. It returns false and writes nothing if the library does not
/// support the product. Throws Error if the library fails. A library uses the number of threads of set_gemm_threads(), and Orthant's own
/// kernels use the threads of Kokkos. The bits of C depend only on the values, extents and transposes of the product, and in a library
/// also on its number of threads.
class DenseLibrary {
 public:
  DenseLibrary() = default;
  DenseLibrary(DenseLibrary const&) = delete;
  DenseLibrary& operator=(DenseLibrary const&) = delete;
  virtual ~DenseLibrary() = default;

  /// Name in tables, such as "openblas".
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// Name and version of the library that runs, such as "OpenBLAS 0.3.21 (SkylakeX)". It can differ from the one at compile time.
  [[nodiscard]] virtual std::string version() const = 0;

  virtual bool multiply(DenseProduct<float> const&) const { return false; }
  virtual bool multiply(DenseProduct<double> const&) const { return false; }
  virtual bool multiply(DenseProduct<runtime::Bf16Number, float> const&) const { return false; }
  virtual bool multiply(DenseProduct<runtime::Bf16Number> const&) const { return false; }
};

/// Libraries of this build. The first is "openblas", which supports all products of fp32 and of fp64 numbers.
[[nodiscard]] std::span<DenseLibrary const* const> dense_libraries();

/// Number of threads per product, set by set_gemm_threads().
[[nodiscard]] int gemm_threads();

namespace detail {

[[nodiscard]] DenseLibrary const& openblas_library();
/// Multiplies with one call of OpenBLAS, whereas openblas_library() may cut a product in pieces. Extents may be 0. For benchmarks.
template<class T>
void multiply_in_one_call(DenseProduct<T> const& product);
/// Null if this build does not include the library.
[[nodiscard]] DenseLibrary const* onednn_library();
/// Null if the processor does not have the vector instructions that the kernels need.
[[nodiscard]] DenseLibrary const* orthant_library();

void set_openblas_threads(int num_threads);

} // namespace detail

} // namespace orthant::pmm

namespace orthant::pmm::detail {

// Pieces of a dense product that is cut along its longest extent, and the transpose of the operand that all pieces share.

/// Calls work(range) for consecutive ranges of `length` that cover [0, total), in order. The last one may be shorter.
template<class Work>
void for_each_range(std::int64_t total, std::int64_t length, Work const& work) {
  for (std::int64_t first = 0; first < total; first += length)
    work(runtime::Range{first, std::min(first + length, total)});
}

/// Calls work(part) for each `length` rows of C, in order.
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

/// Calls work(part) for each `length` columns of C, in order.
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

/// Calls work(part) for each `length` terms of the sums, in order. All parts but the first have beta = 1, so that they are added to C.
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

/// C := sum over pieces of `length` terms of the results of multiply(piece) + beta C. For libraries that add term by term to a float,
/// whose sum of ones stops growing at 2^24.
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

/// Returns the transpose of a small matrix. The result is valid until the next call of this thread, which reuses the memory.
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

namespace orthant::pmm::detail {

/// local_gemm() for 16-bit operands on a host: converts tiles to fp32 and multiplies them. S is in fp32.
///
///   S      := alpha sum_l op(A)[i,l] op(B)[l,j]       over tiles l
///   C[i,j] := round(S + beta C[i,j])
///
/// Only some builds of OpenBLAS multiply 16-bit numbers (sbgemm, shgemm), so Orthant does not use these functions. Each number of A is
/// converted n / 256 times and takes part in 2 n flop; each number of B is converted m / 256 times and takes part in 2 m flop. The tiles
/// take 768 KiB.
template<class Operand, class Result>
void tiled_gemm(runtime::DefaultExec const& exec, float alpha, Transpose transpose_a, Panel<Operand> const& a,
                Transpose transpose_b, Panel<Operand> const& b, float beta, Panel<Result> const& c);

/// Extents of the pieces of a product that rounded_gemm() multiplies at a time, and the sizes of the operands' rounded copies.
struct RoundedPiece {
  constexpr RoundedPiece(GemmExtents const& whole, Transpose transpose_a) : extents(whole) {
    // B is rounded again for each of these rows, which is 4 bytes read per 4,096 flop.
    constexpr auto length = std::int64_t{2048};
    constexpr auto longest = std::int64_t{1} << 14;
    auto const is_sum = transpose_a == Transpose::yes;
    extents.m = std::min(whole.m, is_sum ? longest : length);
    extents.k = std::min(whole.k, is_sum ? length : longest);
    extents.n = std::min(whole.n, is_sum ? longest : most_packed / std::max<std::int64_t>(extents.k, 1));
  }
  GemmExtents extents;
  [[nodiscard]] constexpr std::int64_t left_size() const { return extents.m * extents.k; }
  [[nodiscard]] constexpr std::int64_t right_size() const { return extents.k * extents.n; }
};

/// local_gemm() with GemmMath::bf16 on a host: rounds pieces of the operands to bf16 and multiplies them with sums in fp32.
void rounded_gemm(runtime::DefaultExec const& exec, DenseProduct<float> const& product);

} // namespace orthant::pmm::detail
