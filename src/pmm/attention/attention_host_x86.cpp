// SPDX-License-Identifier: Apache-2.0
#include "pmm/attention/attention_host.hpp"

namespace orthant::pmm::host_attention {

template<class T>
std::vector<HostAttentionKernels<T>> supported_attention_kernels() {
  std::vector<HostAttentionKernels<T>> kernels{attention_kernels_baseline<T>()};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    kernels.push_back(attention_kernels_avx2<T>());
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"))
    kernels.push_back(attention_kernels_avx512<T>());
  return kernels;
}

template std::vector<HostAttentionKernels<float>> supported_attention_kernels();
template std::vector<HostAttentionKernels<double>> supported_attention_kernels();

} // namespace orthant::pmm::host_attention
