// SPDX-License-Identifier: Apache-2.0
#include "pmm/kernels/lanes_avx512.inc"

#include "pmm/token_rows/token_kernels_host_kernel.inc"

namespace orthant::pmm::host_tokens {

template<class T>
HostTokenKernels<T> token_kernels_avx512() {
  return token_kernels<T>;
}

template HostTokenKernels<float> token_kernels_avx512();
template HostTokenKernels<double> token_kernels_avx512();

} // namespace orthant::pmm::host_tokens
