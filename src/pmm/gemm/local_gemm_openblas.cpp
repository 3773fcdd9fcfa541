// SPDX-License-Identifier: Apache-2.0
#include "pmm/gemm/blas_library.hpp"
#include "pmm/gemm/local_gemm.hpp"
#include "pmm/gemm/tiled_gemm.hpp"

#include <algorithm>
#include <cblas.h>
#include <limits>
#include <vector>

// Only OpenBLAS has this function. Another BLAS takes its number of threads from the environment.
extern "C" [[gnu::weak]] void openblas_set_num_threads(int);

namespace orthant::pmm {
namespace {

using runtime::Bf16Number;
using runtime::Fp16Number;

blasint as_blas(std::int64_t extent) {
  ORTHANT_REQUIRE(extent <= std::numeric_limits<blasint>::max(), "matrix extent ", extent);
  return static_cast<blasint>(extent);
}

CBLAS_TRANSPOSE as_blas(Transpose transpose) {
  return transpose == Transpose::yes ? CblasTrans : CblasNoTrans;
}

template<class T>
blasint leading(Panel<T> const& panel) {
  return as_blas(std::max<std::int64_t>(panel.row_stride, 1)); // BLAS refuses 0
}

/// C is m x n, summed over k.
struct Shape {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, Shape const& s, float alpha, Panel<float> const& a,
          Panel<float> const& b, float beta, Panel<float> const& c) {
  cblas_sgemm(CblasRowMajor, ta, tb, as_blas(s.m), as_blas(s.n), as_blas(s.k), alpha, a.data, leading(a),
              b.data, leading(b), beta, c.data, leading(c));
}
void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, Shape const& s, double alpha, Panel<double> const& a,
          Panel<double> const& b, double beta, Panel<double> const& c) {
  cblas_dgemm(CblasRowMajor, ta, tb, as_blas(s.m), as_blas(s.n), as_blas(s.k), alpha, a.data, leading(a),
              b.data, leading(b), beta, c.data, leading(c));
}

int num_threads_in_use = 1;

/// OpenBLAS multiplies matrices of up to 10^6 products on one AVX-512 core without packing them first. A tall
/// product goes faster as a row of such small ones: measured on Zen 4 in fp32, GFLOP/s whole and in pieces,
/// 48,980 x 128 times 128 x {128, 64, 47}: 77 84, 65 84, 50 64; A^T B with 128 x {128, 64, 47} sums: 77 97,
/// 66 93, 51 76. By the processor, not by the clock, so that a run repeats to the bit.
bool multiplies_small_ones_fast() {
  static bool const is_fast = vectors_of_core(find_blas_library().core) == runtime::Vectors::avx512;
  return is_fast && num_threads_in_use == 1;
}

/// Length of the pieces along the long extent; 0: in one piece.
std::int64_t piece_length(std::int64_t length, std::int64_t others) {
  constexpr auto most_products = std::int64_t{1'000'000};
  constexpr auto shortest = std::int64_t{16};
  if (!multiplies_small_ones_fast() || others == 0) return 0;
  auto const piece = most_products / others / shortest * shortest;
  return piece < shortest || length <= piece ? 0 : std::min<std::int64_t>(piece, 96);
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

/// Operands that OpenBLAS takes as they are.
template<class T>
void library_gemm(runtime::DefaultExec const& exec, T alpha, Transpose transpose_a, Panel<T> const& a,
                  Transpose transpose_b, Panel<T> const& b, T beta, Panel<T> const& c) {
  auto const [m, n, k] = detail::gemm_extents(transpose_a, a, transpose_b, b, c);
  if (m == 0 || n == 0) return;
  runtime::compat::fence(exec, "orthant::pmm::local_gemm/BLAS reads on the host");

  // C[rows,:] := op(A)[rows,:] B, piece by piece of C's rows
  if (auto const piece = piece_length(m, n * k); transpose_a == Transpose::no && piece > 0) {
    auto const right = transpose_b == Transpose::yes ? transposed(b) : b;
    for (std::int64_t first = 0; first < m; first += piece) {
      runtime::Range const rows{first, std::min(first + piece, m)};
      gemm(CblasNoTrans, CblasNoTrans, {rows.size(), n, k}, alpha, a.rows(rows), right, beta, c.rows(rows));
    }
    return;
  }
  // C := sum over pieces of A[rows,:]^T B[rows,:]
  if (auto const piece = piece_length(k, m * n);
      transpose_a == Transpose::yes && transpose_b == Transpose::no && piece > 0) {
    for (std::int64_t first = 0; first < k; first += piece) {
      runtime::Range const rows{first, std::min(first + piece, k)};
      gemm(CblasTrans, CblasNoTrans, {m, n, rows.size()}, alpha, a.rows(rows), b.rows(rows),
           first == 0 ? beta : T{1}, c);
    }
    return;
  }
  gemm(as_blas(transpose_a), as_blas(transpose_b), {m, n, k}, alpha, a, b, beta, c);
}

} // namespace

template<class Operand, class Result>
void local_gemm(runtime::DefaultExec const& exec, runtime::SumOf<Result> alpha, Transpose transpose_a,
                Panel<Operand> const& a, Transpose transpose_b, Panel<Operand> const& b,
                runtime::SumOf<Result> beta, std::type_identity_t<Panel<Result>> const& c) {
  if constexpr (runtime::is_16_bit<Operand>)
    detail::tiled_gemm(exec, alpha, transpose_a, a, transpose_b, b, beta, c);
  else
    library_gemm(exec, alpha, transpose_a, a, transpose_b, b, beta, c);
}

void set_gemm_math(GemmMath math) {
  ORTHANT_REQUIRE(has_gemm_math(math), "the host multiplies in fp32 only");
}

bool has_gemm_math(GemmMath math) {
  return math == GemmMath::fp32;
}

void set_gemm_threads(int num_threads) {
  num_threads_in_use = num_threads;
  if (openblas_set_num_threads != nullptr) openblas_set_num_threads(num_threads);
}

template void local_gemm(runtime::DefaultExec const&, float, Transpose, Panel<float> const&, Transpose,
                         Panel<float> const&, float, Panel<float> const&);
template void local_gemm(runtime::DefaultExec const&, double, Transpose, Panel<double> const&, Transpose,
                         Panel<double> const&, double, Panel<double> const&);
template void local_gemm<Bf16Number, float>(runtime::DefaultExec const&, float, Transpose,
                                            Panel<Bf16Number> const&, Transpose, Panel<Bf16Number> const&,
                                            float, Panel<float> const&);
template void local_gemm(runtime::DefaultExec const&, float, Transpose, Panel<Bf16Number> const&, Transpose,
                         Panel<Bf16Number> const&, float, Panel<Bf16Number> const&);
template void local_gemm<Fp16Number, float>(runtime::DefaultExec const&, float, Transpose,
                                            Panel<Fp16Number> const&, Transpose, Panel<Fp16Number> const&,
                                            float, Panel<float> const&);
template void local_gemm(runtime::DefaultExec const&, float, Transpose, Panel<Fp16Number> const&, Transpose,
                         Panel<Fp16Number> const&, float, Panel<Fp16Number> const&);

} // namespace orthant::pmm
