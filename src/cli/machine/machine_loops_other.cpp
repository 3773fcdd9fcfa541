// SPDX-License-Identifier: Apache-2.0
//
// Processors other than x86-64: the baseline is what the compiler's target has.
#include "cli/machine/fma_loop.hpp"
#include "cli/machine/gather_loop.hpp"

namespace orthant::cli {

template<class T>
std::vector<FmaLoop<T>> supported_fma_loops() {
  return {fma_loop_baseline<T>()};
}

template std::vector<FmaLoop<float>> supported_fma_loops();
template std::vector<FmaLoop<double>> supported_fma_loops();

std::vector<GatherLoop> supported_gather_loops() {
  return {gather_loop_baseline()};
}

} // namespace orthant::cli
