#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Arrays of 16-bit numbers on host processors: raw pointers, compiled once for each instruction set. All sets give the
// same bits as single numbers do (numbers/wire.hpp), but for those of a NaN.

#include "runtime/instruction_sets.hpp"
#include "runtime/numbers/number16.hpp"

#include <cstddef>
#include <vector>

namespace orthant::runtime {

/// Arrays of a function do not overlap.
template<class Number>
struct Number16Arrays {
  /// to[i] := from[i].
  void (*widen)(Number const* from, float* to, std::size_t count);
  /// to[i] := from[i] rounded. False if a finite number has become infinite.
  bool (*narrow)(float const* from, Number* to, std::size_t count);
  /// sums[i] += addends[i].
  void (*add)(Number const* addends, float* sums, std::size_t count);
};

/// Those of one instruction set.
template<InstructionSet set, class Number>
[[nodiscard]] Number16Arrays<Number> number16_arrays();

/// Those of every instruction set of this build that the processor has, the widest last.
template<class Number>
[[nodiscard]] std::vector<Number16Arrays<Number>> supported_number16_arrays() {
  return for_supported_sets([](auto set) { return number16_arrays<set.value, Number>(); });
}

template<class Number>
[[nodiscard]] Number16Arrays<Number> const& best_number16_arrays() {
  static auto const best = supported_number16_arrays<Number>().back();
  return best;
}

} // namespace orthant::runtime
