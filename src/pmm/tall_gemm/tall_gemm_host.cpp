// SPDX-License-Identifier: Apache-2.0
//
// Processors other than x86-64: none so far.
#include "pmm/tall_gemm/tall_gemm_host.hpp"

namespace orthant::pmm::host_gemm {

std::vector<TallKernels> supported_tall_kernels() {
  return {};
}

} // namespace orthant::pmm::host_gemm
