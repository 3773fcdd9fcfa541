#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A number of 16 bits in memory, in one of the formats of numbers/wire.hpp. It is read as a float, without loss,
// and written from a float, rounded once. All arithmetic is that of float.

#include "runtime/instruction_sets.hpp"
#include "runtime/numbers/wire.hpp"

#include <cstddef>
#include <type_traits>
#include <vector>

namespace orthant::runtime {

template<class Format>
struct Number16 {
  typename Format::Encoded bits;

  Number16() = default;
  ORTHANT_FUNCTION constexpr explicit Number16(float value) : bits(Format::encode(value)) {}
  ORTHANT_FUNCTION constexpr operator float() const {
    return Format::decode(bits);
  } // NOLINT: it loses nothing
};

using Bf16Number = Number16<Bf16>;
using Fp16Number = Number16<Fp16>;

/// The name of the format that numbers of type T are held in: native for float and double.
template<class T>
inline constexpr auto format_of = Wire::native;
template<>
inline constexpr auto format_of<Bf16Number> = Wire::bf16;
template<>
inline constexpr auto format_of<Fp16Number> = Wire::fp16;

template<class T>
inline constexpr bool is_16_bit = format_of<T> != Wire::native;

/// What numbers of type T are summed in.
template<class T>
using SumOf = std::conditional_t<is_16_bit<T>, float, T>;

// Arrays of 16-bit numbers on host processors: raw pointers, compiled once for each instruction set. All sets give the
// same bits as single numbers do (numbers/wire.hpp), but for those of a NaN.

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
