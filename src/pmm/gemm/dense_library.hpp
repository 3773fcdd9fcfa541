#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The libraries that multiply dense matrices on a host, each behind one interface and in one source file:
//
//   openblas   OpenBLAS, or another BLAS in its place          fp32, fp64      always there
//   onednn     oneDNN, if CMake found it                       fp32, bf16
//   libxsmm    LIBXSMM, if CMake found it                      fp32 times small matrices, sums into small ones
//   orthant    kernels of our own (pmm/tall_gemm), on x86-64   the same
//
// local_gemm() takes the one that gemm_choice.hpp names for a product. Host only.
//
// The host's product of 16-bit operands, by the fp32 product of tiles that are converted first:
//
//   S      := alpha sum_l op(A)[i,l] op(B)[l,j]       over tiles l, in fp32
//   C[i,j] := round(S + beta C[i,j])
//
// Only some builds of OpenBLAS multiply 16-bit numbers themselves (sbgemm, shgemm), so Orthant does not rely on
// them. A number of A is converted n / 256 times and a number of B m / 256 times, beside the 2 n and 2 m flop that
// it takes part in. The tiles take 768 KiB.

#include "pmm/gemm/local_gemm.hpp"
#include "runtime/range.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::pmm {

/// C := alpha op(A) op(B) + beta C. Operands and results as those of local_gemm().
template<class Operand, class Result = Operand>
struct DenseProduct {
  GemmExtents extents; // none is 0
  runtime::SumOf<Result> alpha = 1;
  Transpose transpose_a = Transpose::no;
  Panel<Operand> a;
  Transpose transpose_b = Transpose::no;
  Panel<Operand> b;
  runtime::SumOf<Result> beta = 0;
  Panel<Result> c; // not read if beta is 0
};

/// Each multiply() returns true when C is written, on as many threads as set_gemm_threads() says; our own kernels work on
/// Kokkos's threads. Returns false, and writes nothing, if the library does not have that product. The bits of C depend on the
/// product's numbers, extents and transposes alone, and of a library on its number of threads. Throws Error if it fails.
class DenseLibrary {
 public:
  DenseLibrary() = default;
  DenseLibrary(DenseLibrary const&) = delete;
  DenseLibrary& operator=(DenseLibrary const&) = delete;
  virtual ~DenseLibrary() = default;

  /// As tables name it: "openblas".
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// "OpenBLAS 0.3.21 (SkylakeX)": the library that runs, which need not be the one compiled against.
  [[nodiscard]] virtual std::string version() const = 0;

  virtual bool multiply(DenseProduct<float> const&) const { return false; }
  virtual bool multiply(DenseProduct<double> const&) const { return false; }
  virtual bool multiply(DenseProduct<runtime::Bf16Number, float> const&) const { return false; }
  virtual bool multiply(DenseProduct<runtime::Bf16Number> const&) const { return false; }
};

/// Those of this build. The first is "openblas", which multiplies fp32 and fp64 whatever the extents.
[[nodiscard]] std::span<DenseLibrary const* const> dense_libraries();

/// Threads of each product, as set_gemm_threads() was told.
[[nodiscard]] int gemm_threads();

namespace detail {

[[nodiscard]] DenseLibrary const& openblas_library();
/// OpenBLAS in one call, where openblas_library() may cut a product in pieces; extents may be 0. For benchmarks.
template<class T>
void multiply_in_one_call(DenseProduct<T> const& product);
/// Null if this build does not have it.
[[nodiscard]] DenseLibrary const* onednn_library();
[[nodiscard]] DenseLibrary const* libxsmm_library();
/// Null if the processor has no vectors that it was written for.
[[nodiscard]] DenseLibrary const* orthant_library();

void set_openblas_threads(int num_threads);

} // namespace detail

} // namespace orthant::pmm

namespace orthant::pmm::detail {

// A dense product cut along its longest extent, and the transpose of the operand that all pieces share.

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

namespace orthant::pmm::detail {

/// As local_gemm(), for operands of 16 bits. Host only.
template<class Operand, class Result>
void tiled_gemm(runtime::DefaultExec const& exec, float alpha, Transpose transpose_a, Panel<Operand> const& a,
                Transpose transpose_b, Panel<Operand> const& b, float beta, Panel<Result> const& c);

} // namespace orthant::pmm::detail
