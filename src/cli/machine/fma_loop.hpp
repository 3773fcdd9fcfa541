#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Multiply-adds on numbers that stay in registers, compiled once for each instruction set: what one host
// thread can compute at most, whatever the libraries do.

#include "runtime/instruction_sets.hpp"

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

/// Those of one instruction set.
template<runtime::InstructionSet set, class T>
[[nodiscard]] FmaLoop<T> fma_loop();

/// Those of every instruction set of this build that the processor has, the widest last.
template<class T>
[[nodiscard]] std::vector<FmaLoop<T>> supported_fma_loops() {
  return runtime::for_supported_sets([](auto set) { return fma_loop<set.value, T>(); });
}

} // namespace orthant::cli
