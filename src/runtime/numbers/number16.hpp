#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A number of 16 bits in memory, in one of the formats of numbers/wire.hpp. It is read as a float, without loss,
// and written from a float, rounded once. All arithmetic is that of float.

#include "runtime/numbers/wire.hpp"

#include <type_traits>

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

} // namespace orthant::runtime
