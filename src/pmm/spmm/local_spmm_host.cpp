// SPDX-License-Identifier: Apache-2.0
//
// Processors other than x86-64: the baseline is what the compiler's target has.
#include "pmm/spmm/local_spmm_host.hpp"

namespace orthant::pmm::detail {

template<class T>
HostSpmmRows<T> best_spmm_rows() {
  return spmm_rows_baseline;
}

template HostSpmmRows<float> best_spmm_rows();
template HostSpmmRows<double> best_spmm_rows();

} // namespace orthant::pmm::detail
