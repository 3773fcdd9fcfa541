// SPDX-License-Identifier: Apache-2.0
//
// Processors other than x86-64: the baseline is what the compiler's target has.
#include "pmm/edges/edge_kernels_host.hpp"

namespace orthant::pmm::host_edges {

template<class T>
std::vector<HostEdgeKernels<T>> supported_edge_kernels() {
  return {edge_kernels_baseline<T>()};
}

template std::vector<HostEdgeKernels<float>> supported_edge_kernels();
template std::vector<HostEdgeKernels<double>> supported_edge_kernels();

} // namespace orthant::pmm::host_edges
