#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Sums of rows that lie at given places, kept in registers and written nowhere: what one host thread can gather at
// most from the cache or memory that holds the rows. Compiled once for each instruction set.

#include "runtime/instruction_sets.hpp"

#include <cstdint>
#include <vector>

namespace orthant::cli {

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
