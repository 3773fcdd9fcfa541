// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

namespace orthant::pmm::detail {
namespace {
constexpr std::size_t vector_bytes = 64;
constexpr std::size_t max_vectors = 16;
} // namespace
} // namespace orthant::pmm::detail

#include "pmm/spmm/local_spmm_host_kernel.inc"

namespace orthant::pmm::detail {

template<class T, class B>
HostSpmmRows<T, B> spmm_rows_avx512() {
  return multiply_rows<T, B>;
}

template HostSpmmRows<float> spmm_rows_avx512();
template HostSpmmRows<double> spmm_rows_avx512();
template HostSpmmRows<float, runtime::Bf16Number> spmm_rows_avx512();
template HostSpmmRows<float, runtime::Fp16Number> spmm_rows_avx512();

} // namespace orthant::pmm::detail
