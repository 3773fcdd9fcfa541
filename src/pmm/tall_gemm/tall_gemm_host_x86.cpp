// SPDX-License-Identifier: Apache-2.0
#include "pmm/tall_gemm/tall_gemm_host.hpp"

namespace orthant::pmm::host_gemm {

std::vector<TallKernels> supported_tall_kernels() {
  std::vector<TallKernels> kernels;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) kernels.push_back(tall_kernels_avx2());
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"))
    kernels.push_back(tall_kernels_avx512());
  return kernels;
}

} // namespace orthant::pmm::host_gemm
