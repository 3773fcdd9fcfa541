// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

namespace orthant::cli {
namespace {
constexpr std::size_t vector_bytes = 32;
} // namespace
} // namespace orthant::cli

#include "cli/machine/fma_loop_kernel.inc"
#include "cli/machine/gather_loop_kernel.inc"

namespace orthant::cli {

template<class T>
FmaLoop<T> fma_loop_avx2() {
  return fma_loop<T>;
}

template FmaLoop<float> fma_loop_avx2();
template FmaLoop<double> fma_loop_avx2();

GatherLoop gather_loop_avx2() {
  return gather_loop;
}

} // namespace orthant::cli
