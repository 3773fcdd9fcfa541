// SPDX-License-Identifier: Apache-2.0
#include "cli/machine/bare_gemm.hpp"

#include <algorithm>
#include <cblas.h>

namespace orthant::cli {
namespace {

template<class T>
blasint leading(pmm::Panel<T> const& panel) {
  return static_cast<blasint>(std::max<std::int64_t>(panel.row_stride, 1)); // BLAS refuses 0
}

} // namespace

template<class T>
void bare_gemm(pmm::Transpose transpose_a, pmm::Panel<T> const& a, pmm::Transpose transpose_b,
               pmm::Panel<T> const& b, pmm::Panel<T> const& c) {
  auto const as_blas = [](pmm::Transpose transpose) {
    return transpose == pmm::Transpose::yes ? CblasTrans : CblasNoTrans;
  };
  auto const m = static_cast<blasint>(c.num_rows);
  auto const n = static_cast<blasint>(c.num_columns);
  auto const k = static_cast<blasint>(transpose_a == pmm::Transpose::yes ? a.num_rows : a.num_columns);
  auto const multiply = [&](auto gemm) {
    gemm(CblasRowMajor, as_blas(transpose_a), as_blas(transpose_b), m, n, k, T{1}, a.data, leading(a), b.data,
         leading(b), T{0}, c.data, leading(c));
  };
  if constexpr (sizeof(T) == sizeof(float))
    multiply(cblas_sgemm);
  else
    multiply(cblas_dgemm);
}

template void bare_gemm(pmm::Transpose, pmm::Panel<float> const&, pmm::Transpose, pmm::Panel<float> const&,
                        pmm::Panel<float> const&);
template void bare_gemm(pmm::Transpose, pmm::Panel<double> const&, pmm::Transpose, pmm::Panel<double> const&,
                        pmm::Panel<double> const&);

} // namespace orthant::cli
