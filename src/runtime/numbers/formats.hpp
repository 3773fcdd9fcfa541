#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// 16-bit numbers on the wire and in memory: bfloat16 (8 exponent bits, u = 2^-8) and IEEE half (5 exponent bits, u = 2^-11), both rounded
// to nearest, ties to even. The conversions work on the bits, so that every compiler and device gives the same result.
// The wire also has 8-bit numbers, in blocks with a common scale (block_formats.hpp).

#include "runtime/device/device_function.hpp"
#include "runtime/instruction_sets.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace orthant::runtime {

// A Number16 is a 16-bit number in memory. It is read as a float, without loss, and written from a float, rounded once. All arithmetic is
// done in float.

/// Name of a format. native: the numbers are not encoded. fp8 and int8 are formats of messages only, not of arrays in memory.
enum class Wire : std::uint8_t { native, bf16, fp16, fp8, int8 };

/// True for formats of 8 bits per number, whose blocks have a common scale.
[[nodiscard]] constexpr bool has_blocks(Wire wire) {
  return wire == Wire::fp8 || wire == Wire::int8;
}

ORTHANT_FUNCTION constexpr std::uint16_t encode_bf16(float value) {
  auto const bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U)
    return static_cast<std::uint16_t>((bits >> 16) | 0x40U); // NaN stays NaN
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

ORTHANT_FUNCTION constexpr float decode_bf16(std::uint16_t half) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

// Computes all cases and selects one, so that a loop over numbers is vectorized.
ORTHANT_FUNCTION constexpr std::uint16_t encode_fp16(float value) {
  auto const bits = std::bit_cast<std::uint32_t>(value);
  auto const sign = (bits >> 16) & 0x8000U;
  auto const magnitude = bits & 0x7fffffffU;
  // Subnormal half: adding 0.5 aligns the last kept bit with the last bit of the sum, so that the addition rounds correctly.
  auto const is_subnormal = magnitude < 0x38800000U;
  auto const small = std::bit_cast<float>(is_subnormal ? magnitude : 0U);
  auto const subnormal = std::bit_cast<std::uint32_t>(small + 0.5F) - 0x3f000000U;
  auto const normal = (magnitude + 0xfffU + ((magnitude >> 13) & 1U) - 0x38000000U) >> 13;
  auto const infinity_or_nan = magnitude > 0x7f800000U ? 0x7e00U : 0x7c00U;
  auto const finite = is_subnormal ? subnormal : normal;
  // Values that round to 2^16 or more become infinite.
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

/// A format of 16 bits per number. Kernels are templates of the format, so that they need no branch or call per number.
struct Bf16 {
  using Encoded = std::uint16_t;
  ORTHANT_FUNCTION static constexpr Encoded encode(float value) { return encode_bf16(value); }
  ORTHANT_FUNCTION static constexpr float decode(Encoded encoded) { return decode_bf16(encoded); }
  /// True if a finite value became infinite. Always false for bf16, which has the exponents of fp32: only values within half a unit of the
  /// largest fp32 round to infinity, and they are accepted.
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

/// Returns work(Bf16()) or work(Fp16()), so that the choice is made once per array. `wire` must be one of them.
template<class Work>
constexpr decltype(auto) with_format(Wire wire, Work&& work) {
  return wire == Wire::bf16 ? work(Bf16()) : work(Fp16());
}

/// One number in the format of `wire`. For arrays use Encoding.
constexpr std::uint16_t encode(Wire wire, float value) {
  return with_format(wire, [&](auto format) { return format.encode(value); });
}
constexpr float decode(Wire wire, std::uint16_t encoded) {
  return with_format(wire, [&](auto format) { return format.decode(encoded); });
}

// A number format on the wire: how many bytes an array takes, and how it is encoded, decoded and summed. Its functions are called once per
// array, never once per number.
//
//   sum_in_order: sums[i] := round(((0 + parts[0][i]) + parts[1][i]) + ..)      in fp32

class Encoding {
 public:
  Encoding() = default;
  Encoding(Encoding const&) = delete;
  Encoding& operator=(Encoding const&) = delete;
  virtual ~Encoding() = default;

  /// Bytes of `count` encoded numbers. `scalar_bytes` is the size of one number before encoding; the functions below take only floats.
  [[nodiscard]] virtual std::int64_t encoded_bytes(std::int64_t count,
                                                   std::int64_t scalar_bytes = sizeof(float)) const = 0;
  /// Number of numbers that are encoded together with a common scale; 1 if each is encoded alone. It divides `max_block`. An array may be
  /// cut at multiples of it: the bytes of its pieces, in order, are the bytes of the whole array.
  [[nodiscard]] virtual std::int64_t block_length() const = 0;
  static constexpr std::int64_t max_block = 4096;
  /// `count`, rounded up to whole blocks.
  [[nodiscard]] std::int64_t in_whole_blocks(std::int64_t count) const {
    return (count + block_length() - 1) / block_length() * block_length();
  }

  /// Bytes of a message that consists of these parts, each of which is encoded as an array of its own.
  [[nodiscard]] std::int64_t encoded_bytes(std::span<std::int64_t const> parts,
                                           std::int64_t scalar_bytes = sizeof(float)) const {
    std::int64_t sum = 0;
    for (auto const count : parts)
      sum += encoded_bytes(count, scalar_bytes);
    return sum;
  }

  // Sizes must match: encoded.size() == encoded_bytes(values.size()). Otherwise these functions throw Error.

  /// encoded := values, each rounded once. Throws Error if a finite value does not fit the format.
  virtual void encode(std::span<float const> values, std::span<std::byte> encoded) const = 0;
  /// values := encoded, exactly.
  virtual void decode(std::span<std::byte const> encoded, std::span<float> values) const = 0;
  /// sums[i] += number i of `encoded`, in fp32.
  virtual void decode_and_add(std::span<std::byte const> encoded, std::span<float> sums) const = 0;

  /// Error feedback: encodes what earlier calls have lost along with the values, and keeps what this call loses.
  ///
  ///   encoded := values + residuals        residuals := values + residuals - decode(encoded)
  ///
  /// residuals.size() == values.size().
  void encode_with_feedback(std::span<float const> values, std::span<float> residuals,
                            std::span<std::byte> encoded) const;

  /// sums := encoded sum of the parts, added in order and in fp32. The parts have `count` numbers each and follow one another in memory.
  /// Adds what the encoding loses to `residuals` (`count` numbers), unless it is empty. Throws Error if a finite sum does not fit the format.
  void sum_in_order(std::span<std::byte const> parts, std::int64_t num_parts, std::span<std::byte> sums,
                    std::int64_t count, std::span<float> residuals = {}) const;
};

/// The encoding of a wire format. It lives as long as the program.
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

/// Format of numbers of type T in memory: native for float and double.
template<class T>
inline constexpr auto format_of = Wire::native;
template<>
inline constexpr auto format_of<Bf16Number> = Wire::bf16;
template<>
inline constexpr auto format_of<Fp16Number> = Wire::fp16;

template<class T>
inline constexpr bool is_16_bit = format_of<T> != Wire::native;

/// Type in which numbers of type T are summed.
template<class T>
using SumOf = std::conditional_t<is_16_bit<T>, float, T>;

// Arrays of 16-bit numbers on host processors: raw pointers, compiled once per instruction set. All sets give the same bits as the
// functions for single numbers, except for the bits of a NaN.

/// The two arrays of a function must not overlap.
template<class Number>
struct Number16Arrays {
  /// to[i] := from[i].
  void (*widen)(Number const* from, float* to, std::size_t count);
  /// to[i] := from[i], rounded. Returns false if a finite number has become infinite.
  bool (*narrow)(float const* from, Number* to, std::size_t count);
  /// sums[i] += addends[i].
  void (*add)(Number const* addends, float* sums, std::size_t count);
};

/// The functions for one instruction set.
template<InstructionSet set, class Number>
[[nodiscard]] Number16Arrays<Number> number16_arrays();

/// The functions for all instruction sets that this build has and the processor supports, the widest last.
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
