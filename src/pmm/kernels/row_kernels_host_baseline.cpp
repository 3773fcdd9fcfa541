// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

namespace orthant::pmm::host_rows {
namespace {

typedef std::uint64_t Lanes __attribute__((vector_size(16)));

inline Lanes multiply_low(Lanes x, std::uint32_t y) {
  return (x & 0xFFFFFFFFu) * std::uint64_t{y};
}

} // namespace
} // namespace orthant::pmm::host_rows

#include "pmm/kernels/row_kernels_host_kernel.inc"

namespace orthant::pmm::host_rows {

template<class T>
HostRowKernels<T> row_kernels_baseline() {
  return row_kernels<T>;
}

template HostRowKernels<float> row_kernels_baseline();
template HostRowKernels<double> row_kernels_baseline();
template HostRowKernels<runtime::Bf16Number> row_kernels_baseline();
template HostRowKernels<runtime::Fp16Number> row_kernels_baseline();

} // namespace orthant::pmm::host_rows
