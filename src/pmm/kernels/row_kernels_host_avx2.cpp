// SPDX-License-Identifier: Apache-2.0
#include "pmm/kernels/lanes_avx2.inc"
#include "pmm/kernels/row_kernels_host_kernel.inc"

namespace orthant::pmm::host_rows {

template<class T>
HostRowKernels<T> row_kernels_avx2() {
  return row_kernels<T>;
}

template HostRowKernels<float> row_kernels_avx2();
template HostRowKernels<double> row_kernels_avx2();
template HostRowKernels<runtime::Bf16Number> row_kernels_avx2();
template HostRowKernels<runtime::Fp16Number> row_kernels_avx2();

} // namespace orthant::pmm::host_rows
