// SPDX-License-Identifier: Apache-2.0
//
// The two 16-bit formats against their definitions: every one of the 65,536 codes, and rounding decided by
// distances in double precision.
#include "runtime/numbers/formats.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>

namespace orthant::testing {
namespace {

using namespace orthant::runtime;

constexpr std::uint32_t num_codes = 65'536;

struct Format {
  Wire wire;
  int num_fraction_bits;
  int exponent_bias;

  [[nodiscard]] std::uint16_t infinity() const {
    return static_cast<std::uint16_t>(0x7fffU >> num_fraction_bits << num_fraction_bits);
  }
  [[nodiscard]] bool is_nan(std::uint16_t code) const { return (code & 0x7fffU) > infinity(); }

  /// (-1)^s 2^(e - bias) (1 + f), or with e = 0: (-1)^s 2^(1 - bias) f. Infinity as the power of two that
  /// would follow the largest number, which is where IEEE 754 puts it for rounding.
  [[nodiscard]] double value_of(std::uint16_t code) const {
    auto const magnitude = code & 0x7fffU;
    auto const exponent = static_cast<int>(magnitude >> num_fraction_bits);
    auto const fraction = static_cast<double>(magnitude & ((1U << num_fraction_bits) - 1));
    auto const significand = std::ldexp(fraction, -num_fraction_bits) + (exponent == 0 ? 0.0 : 1.0);
    auto const value = std::ldexp(significand, std::max(exponent, 1) - exponent_bias);
    return (code & 0x8000U) != 0 ? -value : value;
  }
};

class WireFormat : public ::testing::TestWithParam<Format> {};

/// Nothing is nearer than encode(value); at equal distance the code is even; the sign is kept.
void expect_nearest_even(Format const& format, float value) {
  auto const code = encode(format.wire, value);
  ASSERT_EQ((code & 0x8000U) != 0, std::signbit(value)) << value;
  auto const magnitude = static_cast<std::uint16_t>(code & 0x7fffU);
  ASSERT_LE(magnitude, format.infinity()) << value;
  auto const exact = std::abs(static_cast<double>(value));
  if (std::isinf(exact)) {
    ASSERT_EQ(magnitude, format.infinity());
    return;
  }
  auto const distance = [&](int candidate) {
    return std::abs(exact - format.value_of(static_cast<std::uint16_t>(candidate)));
  };
  for (auto const neighbour : {magnitude - 1, magnitude + 1}) {
    if (neighbour < 0 || neighbour > format.infinity()) continue;
    ASSERT_LE(distance(magnitude), distance(neighbour)) << value << " became " << code;
    if (distance(magnitude) == distance(neighbour)) {
      ASSERT_EQ(magnitude % 2, 0) << value << " became " << code;
    }
  }
}

TEST_P(WireFormat, EveryCodeDecodesByItsDefinitionAndComesBack) {
  auto const format = GetParam();
  for (std::uint32_t bits = 0; bits < num_codes; ++bits) {
    auto const code = static_cast<std::uint16_t>(bits);

    auto const value = decode(format.wire, code);

    if (format.is_nan(code)) {
      ASSERT_TRUE(std::isnan(value)) << code;
      ASSERT_TRUE(format.is_nan(encode(format.wire, value))) << code;
      continue;
    }
    if ((code & 0x7fffU) == format.infinity())
      ASSERT_EQ(value, std::copysign(std::numeric_limits<float>::infinity(), format.value_of(code)));
    else
      ASSERT_EQ(static_cast<double>(value), format.value_of(code)) << code;
    ASSERT_EQ(encode(format.wire, value), code);
  }
}

TEST_P(WireFormat, EveryMidpointAndItsNeighboursRoundToNearestEven) {
  auto const format = GetParam();
  for (std::uint16_t code = 0; code < format.infinity(); ++code) {
    auto const above = static_cast<std::uint16_t>(code + 1);
    // Exact in float: it has at least 13 bits more than the format, or is a multiple of its smallest number.
    auto const midpoint = static_cast<float>(0.5 * (format.value_of(code) + format.value_of(above)));
    ASSERT_EQ(static_cast<double>(midpoint), 0.5 * (format.value_of(code) + format.value_of(above)));

    for (auto const sign : {1.0F, -1.0F}) {
      auto const sign_bit = static_cast<std::uint16_t>(sign < 0 ? 0x8000U : 0);
      auto const even = code % 2 == 0 ? code : above;
      ASSERT_EQ(encode(format.wire, sign * midpoint), even | sign_bit);
      ASSERT_EQ(encode(format.wire, sign * std::nextafter(midpoint, 0.0F)), code | sign_bit);
      ASSERT_EQ(encode(format.wire, sign * std::nextafter(midpoint, std::numeric_limits<float>::infinity())),
                above | sign_bit);
    }
  }
}

TEST_P(WireFormat, RandomBitPatternsRoundToNearestEven) {
  auto const format = GetParam();
  std::mt19937 generator(20'26);
  for (int i = 0; i < 1'000'000; ++i) {
    auto const value = std::bit_cast<float>(static_cast<std::uint32_t>(generator()));
    if (std::isnan(value))
      ASSERT_TRUE(format.is_nan(encode(format.wire, value)));
    else
      ASSERT_NO_FATAL_FAILURE(expect_nearest_even(format, value));
  }
}

TEST_P(WireFormat, NanOfAnyPayloadStaysNan) {
  auto const format = GetParam();
  for (std::uint32_t payload = 1; payload < (1U << 23); payload = payload * 3 + 1)
    for (auto const sign : {0U, 0x80000000U})
      ASSERT_TRUE(format.is_nan(encode(format.wire, std::bit_cast<float>(0x7f800000U | payload | sign))));
}

INSTANTIATE_TEST_SUITE_P(All, WireFormat,
                         ::testing::Values(Format{Wire::bf16, 7, 127}, Format{Wire::fp16, 10, 15}),
                         [](auto const& format) {
                           return format.param.wire == Wire::bf16 ? "bf16" : "fp16";
                         });

template<class Number>
void expect_same_as_the_wire(Wire wire) {
  static_assert(sizeof(Number) == 2 && std::is_trivial_v<Number> && is_16_bit<Number>);
  static_assert(std::is_same_v<SumOf<Number>, float> && std::is_same_v<SumOf<double>, double>);
  EXPECT_EQ(format_of<Number>, wire);
  EXPECT_EQ(float(Number{0}), 0.0F);
  for (std::uint32_t code = 0; code < num_codes; ++code) {
    Number number;
    number.bits = static_cast<std::uint16_t>(code);
    auto const value = decode(wire, number.bits);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(float(number)), std::bit_cast<std::uint32_t>(value)) << code;
    auto const between = value * 1.001F;
    EXPECT_EQ(Number(between).bits, encode(wire, between)) << code;
  }
}

TEST(WireFormat, NumbersInMemoryAreThoseOfTheWire) {
  expect_same_as_the_wire<Bf16Number>(Wire::bf16);
  expect_same_as_the_wire<Fp16Number>(Wire::fp16);
}

} // namespace
} // namespace orthant::testing
