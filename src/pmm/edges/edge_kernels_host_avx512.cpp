// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

namespace orthant::pmm::host_edges {
namespace {
constexpr std::size_t vector_bytes = 64;
} // namespace
} // namespace orthant::pmm::host_edges

#include "pmm/edges/edge_kernels_host_kernel.inc"

namespace orthant::pmm::host_edges {

template<class T>
HostEdgeKernels<T> edge_kernels_avx512() {
  return edge_kernels<T>;
}

template HostEdgeKernels<float> edge_kernels_avx512();
template HostEdgeKernels<double> edge_kernels_avx512();

} // namespace orthant::pmm::host_edges
