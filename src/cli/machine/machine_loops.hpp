#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Loops that measure the limits of one host thread, compiled once for each instruction set: multiply-adds on numbers in registers, and
// sums of rows at given places, which read the cache or memory that holds the rows and write nothing.

#include "runtime/instruction_sets.hpp"

#include <cstdint>
#include <vector>

namespace orthant::cli {

template<class T>
struct FmaLoop {
  /// Computes x := x factor + addend `steps` times, in each lane of each chain. Returns the sum of all x, so that the compiler cannot
  /// remove the work.
  T (*run)(std::int64_t steps, T factor, T addend);
  std::int64_t flops_per_step;
};

/// Loop for one instruction set.
template<runtime::InstructionSet set, class T>
[[nodiscard]] FmaLoop<T> fma_loop();

/// Loops for all instruction sets of this build that the processor supports, the widest last.
template<class T>
[[nodiscard]] std::vector<FmaLoop<T>> supported_fma_loops() {
  return runtime::for_supported_sets([](auto set) { return fma_loop<set.value, T>(); });
}

/// Floats per cache line; rows are whole cache lines.
inline constexpr std::int64_t floats_per_line = 16;

struct GatherLoop {
  /// Adds up the `count` rows order[0], order[1], .. of `rows`, each 1, 2, 4 or 8 cache lines long (`lines`). If `ahead` is not 0,
  /// prefetches the row `ahead` places later; `order` must then have `ahead` more entries. Returns the sum of all numbers, so that the
  /// compiler cannot remove the work.
  float (*run)(float const* rows, std::int64_t lines, std::int32_t const* order, std::int64_t count,
               std::int64_t ahead);
};

/// Loop for one instruction set.
template<runtime::InstructionSet set>
[[nodiscard]] GatherLoop gather_loop();

/// Loops for all instruction sets of this build that the processor supports, the widest last.
[[nodiscard]] inline std::vector<GatherLoop> supported_gather_loops() {
  return runtime::for_supported_sets([](auto set) { return gather_loop<set.value>(); });
}

} // namespace orthant::cli
