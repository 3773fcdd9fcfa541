// SPDX-License-Identifier: Apache-2.0
#include "pmm/spmm/local_spmm_host.hpp"

namespace orthant::pmm::detail {

template<class T>
HostSpmmRows<T> best_spmm_rows() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) return spmm_rows_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return spmm_rows_avx2;
  return spmm_rows_baseline;
}

template HostSpmmRows<float> best_spmm_rows();
template HostSpmmRows<double> best_spmm_rows();

} // namespace orthant::pmm::detail
