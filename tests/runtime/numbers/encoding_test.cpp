// SPDX-License-Identifier: Apache-2.0
//
// The encodings of arrays against the formats of single numbers: sizes, conversion, sums in fp32 and in order,
// and arrays that are cut at multiples of a block.
#include "runtime/numbers/formats.hpp"

#include "runtime/error.hpp"
#include "runtime/numbers/encoded_numbers.hpp"

#include <array>
#include <cmath>
#include <gmock/gmock.h>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace orthant::testing {
namespace {

using namespace orthant::runtime;

constexpr std::array all_wires{Wire::native, Wire::bf16, Wire::fp16};

std::vector<float> random_numbers(std::size_t count) {
  std::mt19937 generator(20'27);
  std::vector<float> numbers(count);
  for (auto& number : numbers)
    number = std::ldexp(static_cast<float>(generator() >> 8), -20) - 8.0F; // in [-8, 8)
  return numbers;
}

/// What remains of a number that was on the wire.
float rounded(Wire wire, float value) {
  return wire == Wire::native ? value : decode(wire, encode(wire, value));
}

TEST(Encoding, NativeTakesTheNumbersOwnBytesAndTheOthersTwo) {
  EXPECT_EQ(encoding_of(Wire::native).encoded_bytes(10), 40);
  EXPECT_EQ(encoding_of(Wire::native).encoded_bytes(10, 8), 80);
  for (auto const wire : {Wire::bf16, Wire::fp16}) {
    EXPECT_EQ(encoding_of(wire).encoded_bytes(10), 20);
    EXPECT_EQ(encoding_of(wire).encoded_bytes(10, 8), 20);
    EXPECT_EQ(encoding_of(wire).encoded_bytes(0), 0);
  }
  for (auto const wire : all_wires)
    EXPECT_EQ(Encoding::max_block % encoding_of(wire).block_length(), 0);
}

TEST(Encoding, RoundsEveryNumberAsItsFormatDoes) {
  for (auto const wire : all_wires)
    for (std::size_t const count : {0, 1, 5, 4097}) {
      auto const values = random_numbers(count);

      auto const result = decoded(wire, encoded(wire, values), count);

      for (std::size_t i = 0; i < count; ++i)
        ASSERT_EQ(result[i], rounded(wire, values[i])) << i;
    }
}

TEST(Encoding, KeepsInfinitiesAndZeros) {
  std::vector<float> const values{1.0F, -2.5F, 0.0F, -0.0F, std::numeric_limits<float>::infinity()};
  for (auto const wire : all_wires) {
    auto const result = decoded(wire, encoded(wire, values), values.size());

    EXPECT_EQ(result, values);
    EXPECT_TRUE(std::signbit(result[3]));
  }
}

TEST(Encoding, OfAnArrayIsThatOfItsPieces) {
  for (auto const wire : all_wires) {
    auto const& encoding = encoding_of(wire);
    auto const values = random_numbers(static_cast<std::size_t>(2 * encoding.block_length() + 5));
    auto const whole = encoded(wire, values);
    auto const cut = static_cast<std::size_t>(encoding.block_length());
    auto const cut_bytes = static_cast<std::size_t>(encoding.encoded_bytes(encoding.block_length()));

    auto const front = encoded(wire, {values.begin(), values.begin() + static_cast<std::ptrdiff_t>(cut)});
    auto const back = encoded(wire, {values.begin() + static_cast<std::ptrdiff_t>(cut), values.end()});

    EXPECT_THAT(std::span(whole).first(cut_bytes), ::testing::ElementsAreArray(front));
    EXPECT_THAT(std::span(whole).subspan(cut_bytes), ::testing::ElementsAreArray(back));
  }
}

TEST(Encoding, AddsToWhatIsThere) {
  for (auto const wire : all_wires) {
    auto const values = random_numbers(300);
    std::vector<float> sums(300);
    std::iota(sums.begin(), sums.end(), 0.0F);

    encoding_of(wire).decode_and_add(encoded(wire, values), sums);

    for (std::size_t i = 0; i < sums.size(); ++i)
      ASSERT_EQ(sums[i], static_cast<float>(i) + rounded(wire, values[i])) << i;
  }
}

/// The sum of parts behind one another, as encoding_of(wire) has it, decoded.
std::vector<float> summed(Wire wire, std::vector<float> const& parts, std::int64_t num_parts) {
  auto const& encoding = encoding_of(wire);
  auto const count = static_cast<std::int64_t>(parts.size()) / num_parts;
  std::vector<std::byte> sums(static_cast<std::size_t>(encoding.encoded_bytes(count)));
  encoding.sum_in_order(encoded(wire, parts), num_parts, sums, count);
  return decoded(wire, sums, static_cast<std::size_t>(count));
}

TEST(Encoding, SumsAreInFp32AndInOrder) {
  // bf16 has 8 bits: summed in it, 256 + 1 + 1 + .. would stay 256. In fp32, 2^25 + 1 - 2^25 depends on order.
  EXPECT_EQ(summed(Wire::bf16, {256, 0x1p25F, 1, 1, 1, -0x1p25F}, 3), (std::vector<float>{258, 0}));
  EXPECT_EQ(summed(Wire::bf16, {256, 0x1p25F, 1, -0x1p25F, 1, 1}, 3), (std::vector<float>{258, 1}));
  EXPECT_EQ(summed(Wire::native, {256, 0x1p25F, 1, 1, 1, -0x1p25F}, 3), (std::vector<float>{258, 0}));
}

TEST(Encoding, SumsOfAnyLengthEqualTheirDefinition) {
  constexpr std::int64_t num_parts = 3;
  for (auto const wire : all_wires)
    for (std::size_t const count : {0U, 1U, 4096U, 4097U, 10'000U}) {
      auto const parts = random_numbers(num_parts * count);

      auto const sums = summed(wire, parts, num_parts);

      for (std::size_t i = 0; i < count; ++i) {
        auto sum = 0.0F;
        for (std::size_t p = 0; p < num_parts; ++p)
          sum += rounded(wire, parts[p * count + i]);
        ASSERT_EQ(sums[i], rounded(wire, sum)) << i << " of " << count;
      }
    }
}

TEST(Encoding, RefusesSpansThatDoNotFit) {
  std::vector<float> values(4);
  for (auto const wire : all_wires) {
    auto const& encoding = encoding_of(wire);
    auto bytes = encoded(wire, values);
    auto const short_bytes = std::span(bytes).first(bytes.size() - 1);

    EXPECT_THROW(encoding.encode(values, short_bytes), Error);
    EXPECT_THROW(encoding.decode(short_bytes, values), Error);
    EXPECT_THROW(encoding.decode_and_add(short_bytes, values), Error);
    EXPECT_THROW(encoding.sum_in_order(short_bytes, 2, bytes, 2), Error);
  }
  EXPECT_THROW(static_cast<void>(encoding_of(static_cast<Wire>(99))), Error);
}

TEST(Encoding, Fp16RefusesFiniteNumbersThatBecomeInfinite) {
  auto const encode_one = [](Wire wire, float value) { static_cast<void>(encoded(wire, {value})); };

  EXPECT_NO_THROW(encode_one(Wire::fp16, 65504.0F));
  EXPECT_NO_THROW(encode_one(Wire::fp16, std::nextafter(65520.0F, 0.0F))); // rounds to 65504
  EXPECT_NO_THROW(encode_one(Wire::fp16, std::numeric_limits<float>::infinity()));
  EXPECT_NO_THROW(encode_one(Wire::fp16, std::numeric_limits<float>::quiet_NaN()));
  EXPECT_NO_THROW(encode_one(Wire::bf16, 1e38F));
  for (auto const value : {65520.0F, -65520.0F, 1e38F})
    try {
      encode_one(Wire::fp16, value);
      ADD_FAILURE() << value << " was encoded";
    } catch (Error const& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("fp16"));
      EXPECT_EQ(error.exit_status(), exit_internal);
    }
  EXPECT_THROW(static_cast<void>(summed(Wire::fp16, {40'000, 40'000}, 2)), Error);
}

} // namespace
} // namespace orthant::testing
