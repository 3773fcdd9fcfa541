// SPDX-License-Identifier: Apache-2.0
#include "pmm/local_gemm.hpp"

#include <algorithm>
#include <cblas.h>
#include <limits>

namespace orthant::pmm {
namespace {

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

} // namespace

template<class T>
void local_gemm(runtime::DefaultExec const& exec, T alpha, Transpose transpose_a, Panel<T> const& a,
                Transpose transpose_b, Panel<T> const& b, T beta, Panel<T> const& c) {
  auto const [m, n, k] = detail::gemm_extents(transpose_a, a, transpose_b, b, c);
  if (m == 0 || n == 0) return;
  runtime::compat::fence(exec, "orthant::pmm::local_gemm/BLAS reads on the host");
  auto const multiply = [&, num_rows = as_blas(m), num_columns = as_blas(n), inner = as_blas(k)](auto gemm) {
    gemm(CblasRowMajor, as_blas(transpose_a), as_blas(transpose_b), num_rows, num_columns, inner, alpha,
         a.data, leading(a), b.data, leading(b), beta, c.data, leading(c));
  };
  if constexpr (sizeof(T) == sizeof(float))
    multiply(cblas_sgemm);
  else
    multiply(cblas_dgemm);
}

void set_gemm_math(GemmMath math) {
  ORTHANT_REQUIRE(math == GemmMath::fp32, "the host multiplies in fp32 only");
}

void set_gemm_threads(int num_threads) {
  openblas_set_num_threads(num_threads);
}

template void local_gemm(runtime::DefaultExec const&, float, Transpose, Panel<float> const&, Transpose,
                         Panel<float> const&, float, Panel<float> const&);
template void local_gemm(runtime::DefaultExec const&, double, Transpose, Panel<double> const&, Transpose,
                         Panel<double> const&, double, Panel<double> const&);

} // namespace orthant::pmm
