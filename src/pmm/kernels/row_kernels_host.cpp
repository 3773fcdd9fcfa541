// SPDX-License-Identifier: Apache-2.0
//
// Processors other than x86-64: the baseline is what the compiler's target has.
#include "pmm/kernels/row_kernels_host.hpp"

namespace orthant::pmm::host_rows {

template<class T>
std::vector<HostRowKernels<T>> supported_row_kernels() {
  return {row_kernels_baseline<T>()};
}

template std::vector<HostRowKernels<float>> supported_row_kernels();
template std::vector<HostRowKernels<double>> supported_row_kernels();
template std::vector<HostRowKernels<runtime::Bf16Number>> supported_row_kernels();
template std::vector<HostRowKernels<runtime::Fp16Number>> supported_row_kernels();

} // namespace orthant::pmm::host_rows
