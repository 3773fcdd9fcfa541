// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <immintrin.h>

namespace orthant::pmm::host_rows {
namespace {

typedef std::uint64_t Lanes __attribute__((vector_size(64)));

inline Lanes multiply_low(Lanes x, std::uint32_t y) {
  // All lanes chosen: the plain intrinsic draws a false warning from GCC 12.
  return reinterpret_cast<Lanes>(
      _mm512_maskz_mul_epu32(0xFF, reinterpret_cast<__m512i>(x), _mm512_set1_epi64(y)));
}

} // namespace
} // namespace orthant::pmm::host_rows

#include "pmm/kernels/row_kernels_host_kernel.inc"

namespace orthant::pmm::host_rows {

template<class T>
HostRowKernels<T> row_kernels_avx512() {
  return row_kernels<T>;
}

template HostRowKernels<float> row_kernels_avx512();
template HostRowKernels<double> row_kernels_avx512();
template HostRowKernels<runtime::Bf16Number> row_kernels_avx512();
template HostRowKernels<runtime::Fp16Number> row_kernels_avx512();

} // namespace orthant::pmm::host_rows
