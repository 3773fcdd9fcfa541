// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

namespace orthant::pmm::host_attention {
namespace {
constexpr std::size_t vector_bytes = 32;
} // namespace
} // namespace orthant::pmm::host_attention

#include "pmm/kernels/lanes_avx2.inc"

#include "pmm/attention/attention_host_kernel.inc"

namespace orthant::pmm::host_attention {

template<class T>
HostAttentionKernels<T> attention_kernels_avx2() {
  return attention_kernels<T>;
}

template HostAttentionKernels<float> attention_kernels_avx2();
template HostAttentionKernels<double> attention_kernels_avx2();

} // namespace orthant::pmm::host_attention
