// SPDX-License-Identifier: Apache-2.0
#include "pmm/spmm/local_spmm_host.hpp"

namespace orthant::pmm::detail {

template<class T, class B>
std::vector<HostSpmmRows<T, B>> supported_spmm_rows() {
  std::vector<HostSpmmRows<T, B>> kernels{spmm_rows_baseline<T, B>()};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    kernels.push_back(spmm_rows_avx2<T, B>());
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"))
    kernels.push_back(spmm_rows_avx512<T, B>());
  return kernels;
}

template std::vector<HostSpmmRows<float>> supported_spmm_rows();
template std::vector<HostSpmmRows<double>> supported_spmm_rows();
template std::vector<HostSpmmRows<float, runtime::Bf16Number>> supported_spmm_rows();
template std::vector<HostSpmmRows<float, runtime::Fp16Number>> supported_spmm_rows();

} // namespace orthant::pmm::detail
