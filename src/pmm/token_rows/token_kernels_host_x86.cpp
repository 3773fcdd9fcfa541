// SPDX-License-Identifier: Apache-2.0
#include "pmm/token_rows/token_kernels_host.hpp"

namespace orthant::pmm::host_tokens {

template<class T>
std::vector<HostTokenKernels<T>> supported_token_kernels() {
  std::vector<HostTokenKernels<T>> kernels{token_kernels_baseline<T>()};
  if (__builtin_cpu_supports("avx2")) kernels.push_back(token_kernels_avx2<T>());
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"))
    kernels.push_back(token_kernels_avx512<T>());
  return kernels;
}

template std::vector<HostTokenKernels<float>> supported_token_kernels();
template std::vector<HostTokenKernels<double>> supported_token_kernels();

} // namespace orthant::pmm::host_tokens
