// SPDX-License-Identifier: Apache-2.0
#include "runtime/numbers/random.hpp"

#include "support/statistics.hpp"

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <set>
#include <vector>

namespace orthant::runtime {
namespace {

using test::chi_square_statistic;
using test::chi_square_tail;
using test::uniform_p_value;

// The draws are fixed, so a test either always passes or never; two-sided bounds.
void expect_plausible(double p_value) {
  EXPECT_GT(p_value, 1e-3);
  EXPECT_LT(p_value, 1 - 1e-3);
}

constexpr std::uint64_t all_ones = std::numeric_limits<std::uint64_t>::max();

TEST(ChiSquare, TailEqualsTables) {
  EXPECT_NEAR(chi_square_tail(3.841458820694124, 1), 0.05, 1e-12);
  EXPECT_NEAR(chi_square_tail(18.307038053275146, 10), 0.05, 1e-12);
  EXPECT_NEAR(chi_square_tail(124.34211340400407, 100), 0.05, 1e-12);
  EXPECT_NEAR(chi_square_tail(4, 2), std::exp(-2.0), 1e-14);
  EXPECT_NEAR(chi_square_tail(1, 2), std::exp(-0.5), 1e-14);
}

TEST(Philox, KnownAnswersOfRandom123) {
  // tests/kat_vectors of Random123 1.14.
  EXPECT_EQ((philox4x32<7>({{0, 0, 0, 0}}, 0)),
            (Words4x32{{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}}));
  EXPECT_EQ((philox4x32<10>({{0, 0, 0, 0}}, 0)),
            (Words4x32{{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}));
  EXPECT_EQ((philox4x32<10>({{~0u, ~0u, ~0u, ~0u}}, all_ones)),
            (Words4x32{{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}));
  EXPECT_EQ((philox4x32<10>({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0x299f31d0a4093822)),
            (Words4x32{{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}));
  EXPECT_EQ((philox2x64<7>({{0, 0}}, 0)), (Words2x64{{0xb41da69fbfefc666, 0x511e9ce1a5534056}}));
  EXPECT_EQ((philox2x64<10>({{0, 0}}, 0)), (Words2x64{{0xca00a0459843d731, 0x66c24222c9a845b5}}));
  EXPECT_EQ((philox2x64<10>({{all_ones, all_ones}}, all_ones)),
            (Words2x64{{0x65b021d60cd8310f, 0x4d02f3222f86df20}}));
  EXPECT_EQ((philox2x64<10>({{0x243f6a8885a308d3, 0x13198a2e03707344}}, 0xa4093822299f31d0)),
            (Words2x64{{0x0a5e742c2997341c, 0xb0f883d38000de5d}}));
}

TEST(RandomStream, KeyAndCounterAreWhatTheHeaderSays) {
  constexpr std::uint64_t seed = 0x0123456789abcdef;
  constexpr std::uint64_t step = 0xfedcba9876543210;
  constexpr std::uint64_t vertex = 0x1122334455667788;
  constexpr std::uint64_t feature = 0x99aabbccddeeff00;
  auto const key =
      philox4x32<10>({{0x76543210, 0xfedcba98, static_cast<std::uint32_t>(Purpose::dropout), 7}}, seed);
  auto const stream = RandomStream(seed, Purpose::dropout, step, 7);

  EXPECT_EQ(stream.key(), key[0] | std::uint64_t{key[1]} << 32);
  EXPECT_EQ(stream.block(vertex, feature),
            (philox4x32<10>({{0xddeeff00, 0x99aabbcc, 0x55667788, 0x11223344}}, stream.key())));
  for (unsigned i = 0; i < 4; ++i)
    EXPECT_EQ(stream.bits32(5, 40 + i), stream.block(5, 10)[i]);
  EXPECT_EQ(stream.bits64(5, 20), stream.bits32(5, 40) | std::uint64_t{stream.bits32(5, 41)} << 32);
  EXPECT_EQ(stream.bits64(5, 21), stream.bits32(5, 42) | std::uint64_t{stream.bits32(5, 43)} << 32);
}

// A change here changes every run that anyone has made: it must be wanted.
TEST(RandomStream, DrawsArePinned) {
  constexpr auto stream = RandomStream(42, Purpose::weights, 3, 1);

  static_assert(stream.bits64(1, 2) == 0x3b40ff56ea9e7d0c);
  EXPECT_EQ(stream.uniform<double>(1, 2), 0.23146053192123783);
  EXPECT_NEAR(stream.normal<double>(1, 2), -1.5666225743150419, 1e-15);
  EXPECT_EQ(stream.integer(100'000'000'000, 1, 2), 60151873816u);
}

TEST(RandomStream, EveryArgumentMatters) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t bit = 0; bit < 64; ++bit) {
    keys.insert(RandomStream(std::uint64_t{1} << bit, Purpose::weights).key());
    keys.insert(RandomStream(0, Purpose::weights, std::uint64_t{1} << bit).key());
    if (bit < 32) keys.insert(RandomStream(0, Purpose::weights, 0, 1u << bit).key());
  }
  for (auto const purpose : {Purpose::weights, Purpose::dropout, Purpose::sampling, Purpose::permutation,
                             Purpose::features, Purpose::labels, Purpose::split, Purpose::generator_edges})
    keys.insert(RandomStream(0, purpose).key());
  EXPECT_EQ(keys.size(), 64 + 64 + 32 + 8);
}

// Neighbouring indices, steps and seeds differ in half of the bits: 128 n bits, 5 standard deviations of
// sqrt(32 n).
TEST(RandomStream, NeighboursAreIndependent) {
  constexpr int n = 4000;
  auto const distance = [](Words4x32 const& x, Words4x32 const& y) {
    int bits = 0;
    for (unsigned i = 0; i < 4; ++i)
      bits += std::popcount(x[i] ^ y[i]);
    return bits;
  };
  std::int64_t by_a = 0;
  std::int64_t by_b = 0;
  std::int64_t by_step = 0;
  std::int64_t by_seed = 0;
  std::int64_t by_layer = 0;
  for (std::uint32_t i = 0; i < n; ++i) {
    auto const reference = RandomStream(i, Purpose::test, i, i).block(i, i);
    by_a += distance(reference, RandomStream(i, Purpose::test, i, i).block(i + 1, i));
    by_b += distance(reference, RandomStream(i, Purpose::test, i, i).block(i, i + 1));
    by_step += distance(reference, RandomStream(i, Purpose::test, i + 1, i).block(i, i));
    by_seed += distance(reference, RandomStream(i + 1, Purpose::test, i, i).block(i, i));
    by_layer += distance(reference, RandomStream(i, Purpose::test, i, i + 1).block(i, i));
  }

  for (auto const bits : {by_a, by_b, by_step, by_seed, by_layer})
    EXPECT_NEAR(static_cast<double>(bits), 64.0 * n, 5 * std::sqrt(32.0 * n));
}

TEST(Uniform, StaysInItsInterval) {
  EXPECT_EQ(uniform_float(0), 0.0f);
  EXPECT_EQ(uniform_float(all_ones), std::nextafter(1.0f, 0.0f));
  EXPECT_EQ(uniform_double(0), 0.0);
  EXPECT_EQ(uniform_double(all_ones), std::nextafter(1.0, 0.0));
  EXPECT_GT(uniform_open(0), 0.0);
  EXPECT_LT(uniform_open(all_ones), 1.0);
}

TEST(Uniform, FloatIsDoubleCutTo24Bits) {
  auto const stream = RandomStream(1, Purpose::test);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    auto const exact = stream.uniform<double>(i, 3);
    EXPECT_EQ(stream.uniform<float>(i, 3), static_cast<float>(std::floor(exact * 0x1p24) * 0x1p-24));
  }
}

TEST(Uniform, FillsItsCellsEvenly) {
  auto const stream = RandomStream(11, Purpose::test);
  std::vector<std::int64_t> cells(1000);
  std::vector<std::int64_t> pairs(64 * 64);
  for (std::uint64_t a = 0; a < 2000; ++a) {
    for (std::uint64_t b = 0; b < 100; b += 2) {
      auto const x = stream.uniform<double>(a, b);
      auto const y = stream.uniform<double>(a, b + 1);
      ++cells[static_cast<std::size_t>(x * 1000)];
      ++cells[static_cast<std::size_t>(y * 1000)];
      ++pairs[static_cast<std::size_t>(x * 64) * 64 + static_cast<std::size_t>(y * 64)];
    }
  }

  expect_plausible(uniform_p_value(cells));
  expect_plausible(uniform_p_value(pairs));
}

TEST(Normal, HasTheNormalDistribution) {
  // 100 cells of equal probability by P(Z < z) = erfc(-z / sqrt 2) / 2; the two of a pair in 20 x 20.
  auto const stream = RandomStream(5, Purpose::test);
  auto const cumulative = [](double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); };
  constexpr std::uint64_t n = 200'000;
  std::vector<std::int64_t> cells(100);
  std::vector<std::int64_t> pairs(20 * 20);
  double sum = 0;
  double squares = 0;
  double fourths = 0;
  for (std::uint64_t i = 0; i < n; i += 2) {
    double const z[] = {stream.normal<double>(i / 100, i % 100), stream.normal<double>(i / 100, i % 100 + 1)};
    for (auto const value : z) {
      ++cells[static_cast<std::size_t>(cumulative(value) * 100)];
      sum += value;
      squares += value * value;
      fourths += value * value * value * value;
    }
    ++pairs[static_cast<std::size_t>(cumulative(z[0]) * 20) * 20 +
            static_cast<std::size_t>(cumulative(z[1]) * 20)];
  }

  expect_plausible(uniform_p_value(cells));
  expect_plausible(uniform_p_value(pairs));
  // Means of 1, z, z^2, z^4 are 0, 1, 3 with variances 1, 2, 96; five standard errors.
  EXPECT_NEAR(sum / n, 0, 5 * std::sqrt(1.0 / n));
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2.0 / n));
  EXPECT_NEAR(fourths / n, 3, 5 * std::sqrt(96.0 / n));
}

TEST(Normal, FloatIsDoubleRoundedAndAlwaysFinite) {
  auto const stream = RandomStream(6, Purpose::test);
  for (std::uint64_t i = 0; i < 1000; ++i)
    EXPECT_EQ(stream.normal<float>(i, i), static_cast<float>(stream.normal<double>(i, i)));
  for (auto const word : {0u, ~0u}) {
    auto const extreme = normal_pair({{word, word, 0, 0}});
    EXPECT_TRUE(std::isfinite(extreme.first) && std::fabs(extreme.first) < 8.6) << extreme.first;
    EXPECT_TRUE(std::isfinite(extreme.second)) << extreme.second;
  }
}

TEST(Bernoulli, EndsAreCertain) {
  EXPECT_EQ(bernoulli_threshold(0), 0u);
  EXPECT_EQ(bernoulli_threshold(-1), 0u);
  EXPECT_EQ(bernoulli_threshold(std::numeric_limits<double>::quiet_NaN()), 0u);
  EXPECT_EQ(bernoulli_threshold(1), std::uint64_t{1} << 32);
  EXPECT_EQ(bernoulli_threshold(2), std::uint64_t{1} << 32);
  EXPECT_EQ(bernoulli_threshold(0.5), std::uint64_t{1} << 31);
  EXPECT_EQ(bernoulli_threshold(0x1p-32), 1u);
}

TEST(Bernoulli, HappensAsOftenAsAsked) {
  auto const stream = RandomStream(7, Purpose::dropout);
  constexpr double n = 100'000;
  for (auto const p : {0.01, 0.1, 0.5, 0.9}) {
    double happened = 0;
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(n); ++i)
      happened += stream.bernoulli(p, i / 100, i % 100) ? 1 : 0;
    EXPECT_NEAR(happened, n * p, 5 * std::sqrt(n * p * (1 - p))) << p;
  }
}

// floor(n x / 2^128) digit by digit in base 2^32: the reference for the 128-bit arithmetic.
std::uint64_t bounded_by_long_multiplication(Words4x32 const& x, std::uint64_t n) {
  std::uint64_t digits[6] = {};
  for (unsigned j = 0; j < 2; ++j) {
    std::uint64_t carry = 0;
    for (unsigned i = 0; i < 4; ++i) {
      auto const sum = std::uint64_t{x[i]} * (n >> (32 * j) & 0xffffffff) + digits[i + j] + carry;
      digits[i + j] = sum & 0xffffffff;
      carry = sum >> 32;
    }
    digits[4 + j] += carry;
  }
  return digits[4] | digits[5] << 32;
}

TEST(BoundedInteger, EqualsLongMultiplication) {
  auto const stream = RandomStream(8, Purpose::test);
  for (std::uint64_t n : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3},
                          std::uint64_t{100'000'000'000}, (std::uint64_t{1} << 63) + 1, all_ones}) {
    EXPECT_EQ(bounded_integer({{0, 0, 0, 0}}, n), 0u);
    EXPECT_EQ(bounded_integer({{~0u, ~0u, ~0u, ~0u}}, n), n - 1);
    for (std::uint64_t i = 0; i < 1000; ++i)
      EXPECT_EQ(stream.integer(n, i), bounded_by_long_multiplication(stream.block(i), n));
  }
}

TEST(BoundedInteger, IsUniform) {
  auto const stream = RandomStream(9, Purpose::test);
  std::vector<std::int64_t> small(7);
  std::vector<std::int64_t> large(1000);
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    ++small[stream.integer(7, i, 0)];
    ++large[stream.integer(100'000'000'000, i, 1) / 100'000'000];
  }

  expect_plausible(uniform_p_value(small));
  expect_plausible(uniform_p_value(large));
}

using Exec = Kokkos::DefaultExecutionSpace;
using Doubles = Kokkos::View<double*, Exec::memory_space>;

struct DrawOnDevice {
  RandomStream stream;
  Doubles values; // [5 n]
  KOKKOS_FUNCTION void operator()(int i) const {
    auto const a = static_cast<std::uint64_t>(i);
    values(5 * i) = static_cast<double>(stream.uniform<float>(a, 1));
    values(5 * i + 1) = stream.uniform<double>(a, 2);
    values(5 * i + 2) = stream.normal<double>(a, 3);
    values(5 * i + 3) = stream.bernoulli(0.3, a, 4) ? 1 : 0;
    values(5 * i + 4) = static_cast<double>(stream.integer(1'000'000'007, a, 5));
  }
};

TEST(RandomStream, KernelsDrawWhatTheHostDraws) {
  constexpr int n = 1000;
  auto const stream = RandomStream(10, Purpose::features, 1);
  auto const exec = Exec();
  Doubles const values("orthant::test::draws", 5 * n);

  Kokkos::parallel_for("orthant::test::draw", Kokkos::RangePolicy<Exec>(exec, 0, n),
                       DrawOnDevice{stream, values});
  auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), values);

  for (int i = 0; i < n; ++i) {
    auto const a = static_cast<std::uint64_t>(i);
    EXPECT_EQ(host(5 * i), static_cast<double>(stream.uniform<float>(a, 1)));
    EXPECT_EQ(host(5 * i + 1), stream.uniform<double>(a, 2));
    // log, sqrt, cos and sin of two maths libraries: a few units in the last place of |z| < 8.6.
    EXPECT_NEAR(host(5 * i + 2), stream.normal<double>(a, 3), 2e-14);
    EXPECT_EQ(host(5 * i + 3), stream.bernoulli(0.3, a, 4) ? 1 : 0);
    EXPECT_EQ(host(5 * i + 4), static_cast<double>(stream.integer(1'000'000'007, a, 5)));
  }
}

} // namespace
} // namespace orthant::runtime
