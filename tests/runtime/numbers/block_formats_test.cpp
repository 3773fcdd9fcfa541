// SPDX-License-Identifier: Apache-2.0
//
// The formats of blocks: sizes, the error of every number, numbers near the ends of the range, error feedback, and the kernels of devices
// against the functions of the host.
#include "runtime/numbers/block_formats.hpp"

#include "runtime/arrays/block_kernels.hpp"
#include "runtime/numbers/encoded_numbers.hpp"

#include <Kokkos_Core.hpp>
#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <vector>

namespace orthant::testing::block_formats {
namespace {

using namespace orthant::runtime;

constexpr std::array block_wires{Wire::fp8, Wire::int8};

std::vector<float> on_wire(Wire wire, std::vector<float> const& values) {
  return decoded(wire, encoded(wire, values), values.size());
}

/// Numbers of magnitudes from 2^-12 to 1, times `scale`.
std::vector<float> random_numbers(std::size_t count, float scale, unsigned seed = 1) {
  std::mt19937 generator(seed);
  std::vector<float> numbers(count);
  for (auto& number : numbers) {
    auto const uniform = std::ldexp(static_cast<float>(generator() >> 8), -23) - 1.0F;
    number = std::ldexp(uniform * scale, -static_cast<int>(generator() % 13));
  }
  return numbers;
}

/// Largest error of a number of a block with this largest magnitude; the last term is the rounding of the scale and of its products.
double bound_of(Wire wire, float value, float largest) {
  auto const x = std::abs(static_cast<double>(value));
  auto const m = static_cast<double>(largest);
  auto const rounding = 4 * 0x1p-24 * m;
  if (wire == Wire::int8) return m / 254 + rounding;
  auto const scale = std::exp2(std::ceil(std::log2(m / 448)));
  return std::max(0x1p-4 * x, 0x1p-10 * scale) + rounding;
}

TEST(BlockFormats, TakeOneByteANumberAndAScaleABlock) {
  for (auto const wire : block_wires) {
    auto const& encoding = encoding_of(wire);
    EXPECT_EQ(encoding.block_length(), 128);
    EXPECT_EQ(Encoding::max_block % encoding.block_length(), 0);
    EXPECT_EQ(encoding.encoded_bytes(0), 0);
    EXPECT_EQ(encoding.encoded_bytes(1), 4 + 4);
    EXPECT_EQ(encoding.encoded_bytes(128), 4 + 128);
    EXPECT_EQ(encoding.encoded_bytes(130), 4 + 128 + 4 + 4);
    EXPECT_EQ(encoding.encoded_bytes(1280, 8), 1320);
    EXPECT_EQ(encoding.encoded_bytes(std::array<std::int64_t, 3>{128, 0, 5}), 132 + 12);
  }
}

TEST(BlockFormats, EveryNumberIsWithinTheBound) {
  for (auto const wire : block_wires)
    for (float const scale : {1.0F, 3e-30F, 1e30F})
      for (std::size_t const count : {1U, 5U, 128U, 129U, 5000U}) {
        auto const values = random_numbers(count, scale);

        auto const result = on_wire(wire, values);

        for (std::size_t begin = 0; begin < count; begin += 128) {
          auto const end = std::min(count, begin + 128);
          auto largest = 0.0F;
          for (auto i = begin; i < end; ++i)
            largest = std::max(largest, std::abs(values[i]));
          for (auto i = begin; i < end; ++i)
            ASSERT_LE(std::abs(static_cast<double>(result[i]) - static_cast<double>(values[i])),
                      bound_of(wire, values[i], largest))
                << i << ": " << values[i] << " of at most " << largest;
        }
      }
}

TEST(BlockFormats, Fp8HasTheNumbersOfE4m3) {
  // All 127 magnitudes, the largest in the block: the scale is 1.
  std::vector<float> values{448.0F};
  for (int code = 0; code < 127; ++code) {
    auto const exponent = code / 8;
    auto const mantissa = static_cast<float>(code % 8);
    values.push_back(exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10));
  }
  ASSERT_EQ(values.size(), 128U);
  EXPECT_EQ(on_wire(Wire::fp8, values), values);
  for (auto& value : values)
    value = -value;
  EXPECT_EQ(on_wire(Wire::fp8, values), values);

  // Halfway between two numbers: the even one. 17 lies between 16 and 18, 19 between 18 and 20; 2^-10 between 0 and 2^-9.
  EXPECT_EQ(on_wire(Wire::fp8, {448, 17, 19, 0x1p-10F, 0x3p-10F}),
            (std::vector<float>{448, 16, 20, 0, 0x1p-8F}));
}

TEST(BlockFormats, Int8HasTheIntegers) {
  std::vector<float> values;
  for (int i = -127; i <= 0; ++i)
    values.push_back(static_cast<float>(i));
  EXPECT_EQ(on_wire(Wire::int8, values), values);
  EXPECT_EQ(on_wire(Wire::int8, {127, 2.5F, 3.5F, -2.5F, 0.5F}), (std::vector<float>{127, 2, 4, -2, 0}));
}

TEST(BlockFormats, BlocksOfTinyNumbersAreZeroAndThoseWithAnInfinityOrNanAreNan) {
  auto const infinity = std::numeric_limits<float>::infinity();
  for (auto const wire : block_wires) {
    EXPECT_EQ(on_wire(wire, {0.0F, -0x1p-111F, 0x1p-149F}), (std::vector<float>{0, 0, 0}));
    EXPECT_NE(on_wire(wire, {0x1p-110F})[0], 0);
    EXPECT_TRUE(std::isfinite(on_wire(wire, {0x1p127F})[0]));
    for (auto const bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> values(130, 1.0F);
      values[7] = bad;
      auto const result = on_wire(wire, values);
      for (std::size_t i = 0; i < 128; ++i)
        ASSERT_TRUE(std::isnan(result[i])) << i;
      EXPECT_EQ(result[129], 1) << "another block";
    }
  }
}

/// values + residuals before = decoded + residuals after, up to one rounding of each number: the loss is not lost.
TEST(BlockFormats, FeedbackKeepsWhatTheWireLoses) {
  for (auto const wire : {Wire::bf16, Wire::fp8, Wire::int8}) {
    constexpr std::size_t count = 5000;
    std::vector<float> residuals(count, 0.0F);
    std::vector<double> given(count, 0), arrived(count, 0);
    for (unsigned step = 0; step < 50; ++step) {
      auto const values = random_numbers(count, 1.0F, step + 1);
      std::vector<std::byte> bytes(static_cast<std::size_t>(encoding_of(wire).encoded_bytes(count)));

      encoding_of(wire).encode_with_feedback(values, residuals, bytes);

      auto const result = decoded(wire, bytes, count);
      for (std::size_t i = 0; i < count; ++i) {
        given[i] += static_cast<double>(values[i]);
        arrived[i] += static_cast<double>(result[i]);
      }
    }
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_NEAR(given[i], arrived[i] + static_cast<double>(residuals[i]), 50 * 2 * 0x1p-24 * 2) << i;
  }
}

/// The sum of encoded parts by its definition, and what it loses.
TEST(BlockFormats, SumsKeepWhatTheyLose) {
  for (auto const wire : block_wires) {
    constexpr std::int64_t count = 4500;
    std::vector<std::byte> parts;
    std::vector<float> sums(count, 0.0F);
    for (unsigned p = 0; p < 3; ++p) {
      auto const part = encoded(wire, random_numbers(count, 1.0F, p));
      parts.insert(parts.end(), part.begin(), part.end());
      encoding_of(wire).decode_and_add(part, sums);
    }
    std::vector<float> residuals(count, 0.25F);
    std::vector<std::byte> result(static_cast<std::size_t>(encoding_of(wire).encoded_bytes(count)));

    encoding_of(wire).sum_in_order(parts, 3, result, count, residuals);

    EXPECT_EQ(result, encoded(wire, sums));
    auto const rounded = decoded(wire, result, count);
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_EQ(residuals[i], 0.25F + (sums[i] - rounded[i])) << i;
  }
}

template<class Format>
void expect_kernels_equal_the_host(Wire wire) {
  Kokkos::DefaultHostExecutionSpace const exec;
  for (std::int64_t const count : {1, 127, 128, 131, 4500}) {
    SCOPED_TRACE(count);
    auto const values = random_numbers(static_cast<std::size_t>(count), 1.0F);
    auto const expected = encoded(wire, values);
    std::vector<std::byte> bytes(expected.size());

    detail::encode_blocks_on<Format>(exec, detail::GivenNumbers{values.data(), nullptr}, bytes.data(), count);
    exec.fence();
    EXPECT_EQ(bytes, expected);

    std::vector<float> numbers(values.size());
    detail::decode_blocks_on<Format>(exec, bytes.data(), numbers.data(), count);
    exec.fence();
    EXPECT_EQ(numbers, on_wire(wire, values));

    auto const before = random_numbers(static_cast<std::size_t>(count), 0.01F, 7);
    auto residuals = before, of_host = before;
    encoding_of(wire).encode_with_feedback(values, of_host, bytes);
    std::vector<std::byte> again(bytes.size());
    detail::encode_blocks_on<Format>(exec, detail::GivenNumbers{values.data(), residuals.data()},
                                     again.data(), count);
    exec.fence();
    EXPECT_EQ(again, bytes);
    EXPECT_EQ(residuals, of_host);

    auto parts = expected;
    parts.insert(parts.end(), bytes.begin(), bytes.end());
    std::vector<std::byte> sums(bytes.size()), sums_of_host(bytes.size());
    encoding_of(wire).sum_in_order(parts, 2, sums_of_host, count, of_host);
    detail::encode_blocks_on<Format>(
        exec, detail::SummedNumbers<Format>{parts.data(), 2, bytes_of_blocks(count), residuals.data()},
        sums.data(), count);
    exec.fence();
    EXPECT_EQ(sums, sums_of_host);
    EXPECT_EQ(residuals, of_host);
  }
}

TEST(BlockFormats, KernelsGiveTheBytesOfTheHost) {
  expect_kernels_equal_the_host<Fp8>(Wire::fp8);
  expect_kernels_equal_the_host<Int8>(Wire::int8);
}

} // namespace
} // namespace orthant::testing::block_formats
