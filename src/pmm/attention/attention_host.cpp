// SPDX-License-Identifier: Apache-2.0
//
// Processors other than x86-64: the baseline is what the compiler's target has.
#include "pmm/attention/attention_host.hpp"

namespace orthant::pmm::host_attention {

template<class T>
std::vector<HostAttentionKernels<T>> supported_attention_kernels() {
  return {attention_kernels_baseline<T>()};
}

template std::vector<HostAttentionKernels<float>> supported_attention_kernels();
template std::vector<HostAttentionKernels<double>> supported_attention_kernels();

} // namespace orthant::pmm::host_attention
