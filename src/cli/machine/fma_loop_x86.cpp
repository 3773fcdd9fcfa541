// SPDX-License-Identifier: Apache-2.0
#include "cli/machine/fma_loop.hpp"

namespace orthant::cli {

template<class T>
std::vector<FmaLoop<T>> supported_fma_loops() {
  std::vector<FmaLoop<T>> loops{fma_loop_baseline<T>()};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) loops.push_back(fma_loop_avx2<T>());
  if (__builtin_cpu_supports("avx512f")) loops.push_back(fma_loop_avx512<T>());
  return loops;
}

template std::vector<FmaLoop<float>> supported_fma_loops();
template std::vector<FmaLoop<double>> supported_fma_loops();

} // namespace orthant::cli
