#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Formats of 8 bits per number for messages: blocks of numbers with a common scale,
//
//   x_i  ~  scale q_i
//
//   int8   q_i in -127 .. 127,  scale = max |x| / 127                          |x_i - scale q_i|  <=  max |x| / 254
//   fp8    q_i an e4m3 number,  scale = smallest power of 2 with
//          max |x| / scale <= 448                                              |x_i - scale q_i|  <=  max(2^-4 |x_i|, 2^-10 scale)
//
// rounded to nearest, ties to even; numbers from 1.9375 x 2^127 on may become infinite, as in bf16. A block of which all numbers are below 2^-110 becomes 0, and a block with an infinity or a NaN becomes
// NaN, so that a training that diverges is noticed.
//
// A block has 128 numbers: the scale, a float, then adds 3 % to the message. Shorter blocks would cost more (64: 6 %), and in longer ones
// more numbers share the error of the largest one. In a message, a block is its scale and then its numbers; the last block may be shorter and
// is filled with zeros up to a multiple of 4 bytes, so that every scale is aligned.
//
// Sources: OCP 8-bit floating point specification 1.0 (e4m3); ZeRO++ (arXiv 2306.10209, section 3.1) for blocks of int8.

#include "runtime/device/device_function.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace orthant::runtime {

inline constexpr std::int64_t numbers_per_block = 128;
inline constexpr std::int64_t bytes_per_block = sizeof(float) + numbers_per_block;

/// Bytes that the numbers of a block occupy.
template<class Count>
ORTHANT_FUNCTION constexpr Count padded_length(Count num_numbers) {
  return (num_numbers + 3) / 4 * 4;
}

/// Bytes of an encoded array.
ORTHANT_FUNCTION constexpr std::int64_t bytes_of_blocks(std::int64_t count) {
  auto const rest = count % numbers_per_block;
  auto const bytes_of_rest = rest == 0 ? 0 : static_cast<std::int64_t>(sizeof(float)) + padded_length(rest);
  return count / numbers_per_block * bytes_per_block + bytes_of_rest;
}

ORTHANT_FUNCTION float scale_at(std::byte const* block) {
  return *reinterpret_cast<float const*>(block);
}
ORTHANT_FUNCTION std::uint8_t const* numbers_at(std::byte const* block) {
  return reinterpret_cast<std::uint8_t const*>(block + sizeof(float));
}

/// Bits of |value|. They have the order of the magnitudes, with infinity and NaN above all finite numbers.
ORTHANT_FUNCTION constexpr std::uint32_t magnitude_bits(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7fffffffU;
}

struct BlockScale {
  float scale;
  float inverse; // by which the numbers are multiplied before they are rounded
};

/// The scale of a block that has no number, or none that can be represented. False if it has one.
ORTHANT_FUNCTION constexpr bool is_without_scale(std::uint32_t largest, BlockScale& scale) {
  constexpr std::uint32_t smallest = 17U << 23; // 2^-110: scale and inverse are normal numbers from here on
  constexpr std::uint32_t infinity = 255U << 23;
  if (largest < smallest)
    scale = {0, 0};
  else if (largest >= infinity)
    scale = {std::numeric_limits<float>::quiet_NaN(), 0};
  else
    return false;
  return true;
}

struct Int8 {
  /// `largest`: the largest magnitude_bits() of the block.
  ORTHANT_FUNCTION static constexpr BlockScale scales(std::uint32_t largest) {
    BlockScale scale{};
    if (is_without_scale(largest, scale)) return scale;
    auto const magnitude = std::bit_cast<float>(largest);
    return {magnitude / 127.0F, 127.0F / magnitude};
  }
  /// `scaled` is at most 127 in magnitude, up to rounding. Adding 1.5 x 2^23 leaves the rounded integer in the lowest bits.
  ORTHANT_FUNCTION static constexpr std::uint8_t encode(float scaled) {
    return static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(scaled + 0x1.8p23F));
  }
  ORTHANT_FUNCTION static constexpr float decode(std::uint8_t encoded) {
    return static_cast<float>(static_cast<std::int8_t>(encoded));
  }
};

struct Fp8 {
  ORTHANT_FUNCTION static constexpr BlockScale scales(std::uint32_t largest) {
    BlockScale scale{};
    if (is_without_scale(largest, scale)) return scale;
    // 448 = 1.75 x 2^8. The exponent of the scale, biased.
    auto const biased = (largest >> 23) - 8U + ((largest & 0x7fffffU) > 0x600000U ? 1U : 0U);
    return {std::bit_cast<float>(biased << 23), std::bit_cast<float>((254U - biased) << 23)};
  }
  /// `scaled` is at most 448 in magnitude. Both cases are computed and one is selected, so that a loop is vectorized.
  ORTHANT_FUNCTION static constexpr std::uint8_t encode(float scaled) {
    auto const bits = std::bit_cast<std::uint32_t>(scaled);
    auto const magnitude = bits & 0x7fffffffU;
    // The last bit of 2^14 is 2^-9, the smallest e4m3 number: the addition rounds to multiples of it.
    auto const is_subnormal = magnitude < (121U << 23);
    auto const small = std::bit_cast<float>(is_subnormal ? magnitude : 0U);
    auto const subnormal =
        std::bit_cast<std::uint32_t>(small + 0x1p14F) - std::bit_cast<std::uint32_t>(0x1p14F);
    auto const normal = (magnitude + 0x7ffffU + ((magnitude >> 20) & 1U) - (120U << 23)) >> 20;
    return static_cast<std::uint8_t>(((bits >> 24) & 0x80U) | (is_subnormal ? subnormal : normal));
  }
  ORTHANT_FUNCTION static constexpr float decode(std::uint8_t encoded) {
    auto const magnitude = static_cast<std::uint32_t>(encoded & 0x7fU);
    auto const normal = (magnitude << 20) + (120U << 23);
    auto const subnormal = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-9F);
    auto const sign = static_cast<std::uint32_t>(encoded & 0x80U) << 24;
    return std::bit_cast<float>(sign | (magnitude < 8U ? subnormal : normal));
  }
};

} // namespace orthant::runtime
