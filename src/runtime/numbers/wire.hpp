#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Numbers of 16 bits for the wire: bfloat16 (8 exponent bits, u = 2^-8) and IEEE half (5 exponent bits, u =
// 2^-11), both rounded to nearest, ties to even. Done on the bits, so every compiler and device gives the
// same.

#include "runtime/device/device_function.hpp"

#include <bit>
#include <cstdint>
#include <span>

namespace orthant::runtime {

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

ORTHANT_FUNCTION constexpr std::uint16_t encode_fp16(float value) {
  auto const bits = std::bit_cast<std::uint32_t>(value);
  auto const sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  auto const magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (magnitude >= 0x477ff000U)
    return static_cast<std::uint16_t>(sign | 0x7c00U); // rounds to 2^16 or more: infinity
  if (magnitude < 0x38800000U) {
    // Subnormal half: adding 0.5 aligns the last kept bit with the last bit of the sum, whose rounding is
    // ours.
    auto const sum = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F);
    return static_cast<std::uint16_t>(sign | (sum - 0x3f000000U));
  }
  auto const rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
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

ORTHANT_FUNCTION constexpr std::uint16_t encode(Wire wire, float value) {
  return wire == Wire::bf16 ? encode_bf16(value) : encode_fp16(value);
}
ORTHANT_FUNCTION constexpr float decode(Wire wire, std::uint16_t half) {
  return wire == Wire::bf16 ? decode_bf16(half) : decode_fp16(half);
}
/// True where a finite value became infinite.
ORTHANT_FUNCTION constexpr bool has_overflowed(Wire wire, float value, std::uint16_t encoded) {
  return wire == Wire::fp16 && (encoded & 0x7fffU) == 0x7c00U &&
         (std::bit_cast<std::uint32_t>(value) & 0x7fffffffU) < 0x7f800000U;
}

/// wire[i] := values[i], rounded once. Throws Error where a finite value overflows fp16.
void encode(Wire wire, std::span<float const> values, std::span<std::uint16_t> encoded);
/// values[i] := encoded[i], exactly.
void decode(Wire wire, std::span<std::uint16_t const> encoded, std::span<float> values);
/// sums[i] := the sum over parts p, in order and in fp32, of parts[p * sums.size() + i], rounded once to the
/// wire type.
void sum_in_order(Wire wire, std::span<std::uint16_t const> parts, std::span<std::uint16_t> sums);

} // namespace orthant::runtime
