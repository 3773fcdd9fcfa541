// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

namespace orthant::pmm::host_attention {
namespace {
constexpr std::size_t vector_bytes = 16;
} // namespace
} // namespace orthant::pmm::host_attention

#include "pmm/kernels/lanes_baseline.inc"

#include "pmm/attention/attention_host_kernel.inc"

namespace orthant::pmm::host_attention {

template<class T>
HostAttentionKernels<T> attention_kernels_baseline() {
  return attention_kernels<T>;
}

template HostAttentionKernels<float> attention_kernels_baseline();
template HostAttentionKernels<double> attention_kernels_baseline();

} // namespace orthant::pmm::host_attention
