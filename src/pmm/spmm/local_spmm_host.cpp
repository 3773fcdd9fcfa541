// SPDX-License-Identifier: Apache-2.0
//
// Processors other than x86-64: the baseline is what the compiler's target has.
#include "pmm/spmm/local_spmm_host.hpp"

namespace orthant::pmm::detail {

template<class T, class B>
std::vector<HostSpmmRows<T, B>> supported_spmm_rows() {
  return {spmm_rows_baseline<T, B>()};
}

template std::vector<HostSpmmRows<float>> supported_spmm_rows();
template std::vector<HostSpmmRows<double>> supported_spmm_rows();
template std::vector<HostSpmmRows<float, runtime::Bf16Number>> supported_spmm_rows();
template std::vector<HostSpmmRows<float, runtime::Fp16Number>> supported_spmm_rows();

} // namespace orthant::pmm::detail
