// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <immintrin.h>

namespace orthant::pmm::host_rows {
namespace {

typedef std::uint64_t Lanes __attribute__((vector_size(32)));

inline Lanes multiply_low(Lanes x, std::uint32_t y) {
  return reinterpret_cast<Lanes>(_mm256_mul_epu32(reinterpret_cast<__m256i>(x), _mm256_set1_epi64x(y)));
}

} // namespace
} // namespace orthant::pmm::host_rows

#include "pmm/kernels/row_kernels_host_kernel.inc"

namespace orthant::pmm::host_rows {

template<class T>
HostRowKernels<T> row_kernels_avx2() {
  return row_kernels<T>;
}

template HostRowKernels<float> row_kernels_avx2();
template HostRowKernels<double> row_kernels_avx2();
template HostRowKernels<runtime::Bf16Number> row_kernels_avx2();
template HostRowKernels<runtime::Fp16Number> row_kernels_avx2();

} // namespace orthant::pmm::host_rows
