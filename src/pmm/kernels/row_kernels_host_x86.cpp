// SPDX-License-Identifier: Apache-2.0
#include "pmm/kernels/row_kernels_host.hpp"

namespace orthant::pmm::host_rows {

template<class T>
std::vector<HostRowKernels<T>> supported_row_kernels() {
  std::vector<HostRowKernels<T>> kernels{row_kernels_baseline<T>()};
  if (__builtin_cpu_supports("avx2")) kernels.push_back(row_kernels_avx2<T>());
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"))
    kernels.push_back(row_kernels_avx512<T>());
  return kernels;
}

template std::vector<HostRowKernels<float>> supported_row_kernels();
template std::vector<HostRowKernels<double>> supported_row_kernels();
template std::vector<HostRowKernels<runtime::Bf16Number>> supported_row_kernels();
template std::vector<HostRowKernels<runtime::Fp16Number>> supported_row_kernels();

} // namespace orthant::pmm::host_rows
