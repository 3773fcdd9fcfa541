// SPDX-License-Identifier: Apache-2.0
#include "cli/machine/fma_loop.hpp"
#include "cli/machine/gather_loop.hpp"

namespace orthant::cli {
namespace {

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
bool has_avx512() {
  return __builtin_cpu_supports("avx512f");
}

} // namespace

template<class T>
std::vector<FmaLoop<T>> supported_fma_loops() {
  std::vector<FmaLoop<T>> loops{fma_loop_baseline<T>()};
  if (has_avx2()) loops.push_back(fma_loop_avx2<T>());
  if (has_avx512()) loops.push_back(fma_loop_avx512<T>());
  return loops;
}

template std::vector<FmaLoop<float>> supported_fma_loops();
template std::vector<FmaLoop<double>> supported_fma_loops();

std::vector<GatherLoop> supported_gather_loops() {
  std::vector<GatherLoop> loops{gather_loop_baseline()};
  if (has_avx2()) loops.push_back(gather_loop_avx2());
  if (has_avx512()) loops.push_back(gather_loop_avx512());
  return loops;
}

} // namespace orthant::cli
