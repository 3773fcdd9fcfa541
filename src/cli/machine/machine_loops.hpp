#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Multiply-adds on numbers that stay in registers, compiled once for each instruction set: what one host
// thread can compute at most, whatever the libraries do.
//
// Sums of rows that lie at given places, kept in registers and written nowhere: what one host thread can gather at
// most from the cache or memory that holds the rows. Compiled once for each instruction set.

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

/// Of a row: whole cache lines.
inline constexpr std::int64_t floats_per_line = 16;

struct GatherLoop {
  /// Adds up the rows order[0], order[1], .. of `rows`, each `lines` cache lines long: 1, 2, 4 or 8. The row that lies
  /// `ahead` places ahead is fetched, if that is not 0; `order` has as many places more. Returns the sum of all their
  /// numbers, so that nothing can be left out.
  float (*run)(float const* rows, std::int64_t lines, std::int32_t const* order, std::int64_t count,
               std::int64_t ahead);
};

/// Those of one instruction set.
template<runtime::InstructionSet set>
[[nodiscard]] GatherLoop gather_loop();

/// Those of every instruction set of this build that the processor has, the widest last.
[[nodiscard]] inline std::vector<GatherLoop> supported_gather_loops() {
  return runtime::for_supported_sets([](auto set) { return gather_loop<set.value>(); });
}

} // namespace orthant::cli
