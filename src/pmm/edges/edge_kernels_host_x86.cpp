// SPDX-License-Identifier: Apache-2.0
#include "pmm/edges/edge_kernels_host.hpp"

namespace orthant::pmm::host_edges {

template<class T>
std::vector<HostEdgeKernels<T>> supported_edge_kernels() {
  std::vector<HostEdgeKernels<T>> kernels{edge_kernels_baseline<T>()};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    kernels.push_back(edge_kernels_avx2<T>());
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"))
    kernels.push_back(edge_kernels_avx512<T>());
  return kernels;
}

template std::vector<HostEdgeKernels<float>> supported_edge_kernels();
template std::vector<HostEdgeKernels<double>> supported_edge_kernels();

} // namespace orthant::pmm::host_edges
