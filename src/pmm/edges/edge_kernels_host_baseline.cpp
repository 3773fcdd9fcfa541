// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

namespace orthant::pmm::host_edges {
namespace {
constexpr std::size_t vector_bytes = 16;
} // namespace
} // namespace orthant::pmm::host_edges

#include "pmm/edges/edge_kernels_host_kernel.inc"

namespace orthant::pmm::host_edges {

template<class T>
HostEdgeKernels<T> edge_kernels_baseline() {
  return edge_kernels<T>;
}

template HostEdgeKernels<float> edge_kernels_baseline();
template HostEdgeKernels<double> edge_kernels_baseline();

} // namespace orthant::pmm::host_edges
