// SPDX-License-Identifier: Apache-2.0
//
// Processors other than x86-64: the baseline is what the compiler's target has.
#include "pmm/token_rows/token_kernels_host.hpp"

namespace orthant::pmm::host_tokens {

template<class T>
std::vector<HostTokenKernels<T>> supported_token_kernels() {
  return {token_kernels_baseline<T>()};
}

template std::vector<HostTokenKernels<float>> supported_token_kernels();
template std::vector<HostTokenKernels<double>> supported_token_kernels();

} // namespace orthant::pmm::host_tokens
