#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Multiply-adds on numbers that stay in registers, compiled once for each instruction set: what one host
// thread can compute at most, whatever the libraries do.

#include <cstdint>
#include <vector>

namespace orthant::cli {

template<class T>
struct FmaLoop {
  /// Each lane of each chain: x := x factor + addend, `steps` times over. Returns the sum of all x, so that
  /// nothing can be left out.
  T (*run)(std::int64_t steps, T factor, T addend);
  std::int64_t flops_per_step;
};

template<class T>
[[nodiscard]] FmaLoop<T> fma_loop_baseline();
template<class T>
[[nodiscard]] FmaLoop<T> fma_loop_avx2();
template<class T>
[[nodiscard]] FmaLoop<T> fma_loop_avx512();

/// Those of every instruction set of this build that the processor has, the widest last.
template<class T>
[[nodiscard]] std::vector<FmaLoop<T>> supported_fma_loops();

} // namespace orthant::cli
