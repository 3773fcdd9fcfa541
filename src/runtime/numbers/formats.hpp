#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Numbers of 16 bits for the wire: bfloat16 (8 exponent bits, u = 2^-8) and IEEE half (5 exponent bits, u =
// 2^-11), both rounded to nearest, ties to even. Done on the bits, so every compiler and device gives the
// same.

#include "runtime/device/device_function.hpp"
#include "runtime/instruction_sets.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace orthant::runtime {

// A number of 16 bits in memory, in one of the formats of numbers/formats.hpp. It is read as a float, without loss,
// and written from a float, rounded once. All arithmetic is that of float.

/// The name of a format; what the format is: numbers/formats.hpp. Native: the numbers as they are.
enum class Wire : std::uint8_t { native, bf16, fp16 };

ORTHANT_FUNCTION constexpr std::uint16_t encode_bf16(float value) {
  auto const bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U)
    return static_cast<std::uint16_t>((bits >> 16) | 0x40U); // NaN stays NaN
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

ORTHANT_FUNCTION constexpr float decode_bf16(std::uint16_t half) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

// All cases are computed and one is chosen, so that a loop over numbers is vectorised.
ORTHANT_FUNCTION constexpr std::uint16_t encode_fp16(float value) {
  auto const bits = std::bit_cast<std::uint32_t>(value);
  auto const sign = (bits >> 16) & 0x8000U;
  auto const magnitude = bits & 0x7fffffffU;
  // Subnormal half: adding 0.5 aligns the last kept bit with the last bit of the sum, whose rounding is
  // ours.
  auto const is_subnormal = magnitude < 0x38800000U;
  auto const small = std::bit_cast<float>(is_subnormal ? magnitude : 0U);
  auto const subnormal = std::bit_cast<std::uint32_t>(small + 0.5F) - 0x3f000000U;
  auto const normal = (magnitude + 0xfffU + ((magnitude >> 13) & 1U) - 0x38000000U) >> 13;
  auto const infinity_or_nan = magnitude > 0x7f800000U ? 0x7e00U : 0x7c00U;
  auto const finite = is_subnormal ? subnormal : normal;
  // What rounds to 2^16 or more is infinite.
  return static_cast<std::uint16_t>(sign | (magnitude >= 0x477ff000U ? infinity_or_nan : finite));
}

ORTHANT_FUNCTION constexpr float decode_fp16(std::uint16_t half) {
  auto const sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  auto const magnitude = static_cast<std::uint32_t>(half & 0x7fffU);
  if (magnitude >= 0x7c00U) return std::bit_cast<float>(sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13));
  if (magnitude < 0x400U) {
    auto const value = static_cast<float>(magnitude) * 0x1p-24F;
    return sign == 0 ? value : -value;
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000U));
}

/// A format of 16 bits a number: what kernels are templates of, so that no number costs a branch or a call.
struct Bf16 {
  using Encoded = std::uint16_t;
  ORTHANT_FUNCTION static constexpr Encoded encode(float value) { return encode_bf16(value); }
  ORTHANT_FUNCTION static constexpr float decode(Encoded encoded) { return decode_bf16(encoded); }
  /// True if a finite value became infinite. bf16 has the exponents of fp32: what rounds up to infinity lies
  /// within half a unit of the largest fp32, and is let through.
  ORTHANT_FUNCTION static constexpr bool has_overflowed(float, Encoded) { return false; }
};
struct Fp16 {
  using Encoded = std::uint16_t;
  ORTHANT_FUNCTION static constexpr Encoded encode(float value) { return encode_fp16(value); }
  ORTHANT_FUNCTION static constexpr float decode(Encoded encoded) { return decode_fp16(encoded); }
  ORTHANT_FUNCTION static constexpr bool has_overflowed(float value, Encoded encoded) {
    return (encoded & 0x7fffU) == 0x7c00U &&
           (std::bit_cast<std::uint32_t>(value) & 0x7fffffffU) < 0x7f800000U;
  }
};

/// work(Bf16()) or work(Fp16()): the choice is made once per array. `wire` must not be native.
template<class Work>
constexpr decltype(auto) with_format(Wire wire, Work&& work) {
  return wire == Wire::bf16 ? work(Bf16()) : work(Fp16());
}

/// One number, in the format of `wire`. Arrays: numbers/formats.hpp.
constexpr std::uint16_t encode(Wire wire, float value) {
  return with_format(wire, [&](auto format) { return format.encode(value); });
}
constexpr float decode(Wire wire, std::uint16_t encoded) {
  return with_format(wire, [&](auto format) { return format.decode(encoded); });
}

// What a format of numbers on the wire is: how many bytes an array takes, and how it is written, read and
// summed. The interface is called once per array, never once per number.
//
//   sum_in_order: sums[i] := round(((0 + parts[0][i]) + parts[1][i]) + ..)      in fp32

class Encoding {
 public:
  Encoding() = default;
  Encoding(Encoding const&) = delete;
  Encoding& operator=(Encoding const&) = delete;
  virtual ~Encoding() = default;

  /// Bytes of `count` encoded numbers. `scalar_bytes`: of one number before it is encoded; the functions below
  /// take floats.
  [[nodiscard]] virtual std::int64_t encoded_bytes(std::int64_t count,
                                                   std::int64_t scalar_bytes = sizeof(float)) const = 0;
  /// Numbers that are encoded together, with a scale in common; 1 if each stands alone. It divides `max_block`.
  /// An array may be cut at multiples of it: the bytes of the whole are then those of its pieces, in order.
  [[nodiscard]] virtual std::int64_t block_length() const = 0;
  static constexpr std::int64_t max_block = 4096;

  // The spans must fit each other: encoded.size() == encoded_bytes(values.size()). Otherwise these throw Error.

  /// encoded := values, each rounded once. Throws Error if a finite value does not fit the format.
  virtual void encode(std::span<float const> values, std::span<std::byte> encoded) const = 0;
  /// values := encoded, exactly.
  virtual void decode(std::span<std::byte const> encoded, std::span<float> values) const = 0;
  /// sums[i] += number i of `encoded`, in fp32.
  virtual void decode_and_add(std::span<std::byte const> encoded, std::span<float> sums) const = 0;

  /// sums := the sum of the parts, `count` numbers each and one behind the other, in order and in fp32, then
  /// encoded. Throws Error if a finite sum does not fit the format.
  void sum_in_order(std::span<std::byte const> parts, std::int64_t num_parts, std::span<std::byte> sums,
                    std::int64_t count) const;
};

/// Lives as long as the program.
[[nodiscard]] Encoding const& encoding_of(Wire wire);

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
// same bits as single numbers do (numbers/formats.hpp), but for those of a NaN.

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
