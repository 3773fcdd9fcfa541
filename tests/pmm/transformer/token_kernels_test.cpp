// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tokens on host processors: every instruction set gives the same bits, and activations of single precision are as
// near to their definitions as token_kernels_host.hpp says, over all of their arguments.
#include "pmm/token_rows/token_kernels_host.hpp"

#include "support/kernel_numbers.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

namespace orthant::testing {
namespace {

using namespace orthant::pmm::host_tokens;

/// The larger of two errors; what is no number is larger than all.
double larger(double worst, double error) {
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
}

template<class T>
class TokenKernelsTest : public ::testing::Test {};
using Scalars = ::testing::Types<float, double>;
TYPED_TEST_SUITE(TokenKernelsTest, Scalars);

/// All results of one instruction set, in one array.
template<class T>
std::vector<T> results_of(HostTokenKernels<T> const& kernels, std::int64_t columns, bool has_mean,
                          bool is_whole) {
  constexpr std::int64_t rows = 9;
  auto const size = rows * columns;
  auto const x = numbers<T>(1, size), dy = numbers<T>(2, size), scale = numbers<T>(3, columns),
             shift = numbers<T>(4, columns);
  std::vector<T> all;
  auto const keep = [&all](std::vector<T> const& some) { all.insert(all.end(), some.begin(), some.end()); };
  std::vector<T> y(x.size()), dx = dy, sums(2 * rows), mean(rows), deviation(rows), d_scale(scale),
                              d_shift(shift);
  HostRowNorm<T> norm;
  norm.num_rows = rows;
  norm.num_columns = columns;
  norm.inverse_width = 1 / static_cast<double>(columns);
  norm.epsilon = 1e-5;
  norm.has_mean = has_mean;
  norm.is_whole = is_whole;
  norm.x = x.data();
  norm.scale = scale.data();
  norm.shift = has_mean ? shift.data() : nullptr;
  norm.mean = mean.data();
  norm.inverse_deviation = deviation.data();
  norm.sums = sums.data();
  norm.y = y.data();
  norm.dy = dx.data(); // in place
  norm.dx = dx.data();
  norm.d_scale = d_scale.data();
  norm.d_shift = d_shift.data();
  kernels.sum_moments(norm, 0, rows);
  keep(sums);
  kernels.apply_norm(norm, 0, 4);
  kernels.apply_norm(norm, 4, rows);
  if (!is_whole) kernels.sum_norm_gradient(norm, 0, rows);
  kernels.norm_backward(norm, 0, columns);
  for (auto const* some : {&y, &sums, &mean, &deviation, &dx, &d_scale, &d_shift}) { // nvcc wants the braces
    keep(*some);
  }

  std::vector<std::int64_t> const ids{5, 0, 1, std::int64_t{1} << 40, 77, 3, 2, 8, 9};
  HostDrop<T> const drop{columns, x.data(), dy.data(), y.data(), ids.data(), 6, 99, 1U << 30, T(1.5)};
  kernels.drop(drop, 0, rows);
  keep(y);
  std::vector<T> result(x.size());
  kernels.gelu({x.data(), dy.data(), result.data()}, 0, size);
  keep(result);
  kernels.gelu_backward({x.data(), dy.data(), result.data()}, 0, size);
  keep(result);
  auto const half = size / 2;
  kernels.swiglu({x.data(), nullptr, result.data()}, 0, half);
  keep(result);
  kernels.swiglu_backward({x.data(), dy.data(), result.data()}, 0, half);
  keep(result);
  return all;
}

TYPED_TEST(TokenKernelsTest, EveryInstructionSetGivesTheSameBits) {
  using T = TypeParam;
  for (std::int64_t const columns : {1, 3, 16, 47, 100, 130})
    for (bool const has_mean : {false, true})
      for (bool const is_whole : {false, true}) {
        std::vector<std::vector<T>> results;
        for (auto const& kernels : supported_token_kernels<T>())
          results.push_back(results_of(kernels, columns, has_mean, is_whole));
        for (auto const& result : results)
          EXPECT_TRUE(are_equal_bits(result, results.front())) << columns;
      }
}

/// A float of every 4,099th pattern of bits, of either sign.
std::vector<float> floats() {
  std::vector<float> result;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 4099) {
    auto const number = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (std::isfinite(number)) result.push_back(number);
  }
  // Densely where functions bend.
  for (std::int64_t i = -16 * 4096; i <= 16 * 4096; ++i)
    result.push_back(static_cast<float>(i) / 4096);
  return result;
}

constexpr auto unit = 0x1p-24;

TEST(TokenKernels, ActivationsAreAsExactAsStated) {
  auto const z = floats();
  auto const count = static_cast<std::int64_t>(z.size());
  std::vector<float> const ones(z.size(), 1.0F);
  std::vector<float> y(z.size()), slope(z.size());
  auto const& kernels = best_token_kernels<float>();

  kernels.gelu({z.data(), nullptr, y.data()}, 0, count);
  kernels.gelu_backward({z.data(), ones.data(), slope.data()}, 0, count);

  auto worst = 0.0, worst_slope = 0.0;
  for (std::size_t i = 0; i < z.size(); ++i) {
    auto const x = static_cast<double>(z[i]);
    auto const distribution = 0.5 * std::erfc(-x / std::sqrt(2.0));
    auto const density = 0.3989422804014327 * std::exp(-0.5 * x * x);
    // Beside it half of the smallest float: results may be subnormal.
    auto const error = std::abs(static_cast<double>(y[i]) - x * distribution) - 0x1p-150;
    worst = larger(worst, x == 0 ? 0 : error / std::abs(x));
    worst_slope = larger(worst_slope, std::abs(static_cast<double>(slope[i]) - distribution - x * density));
  }
  EXPECT_LE(worst, 6 * unit) << worst / unit;
  EXPECT_LE(worst_slope, 6 * unit) << worst_slope / unit;
}

TEST(TokenKernels, TheLogisticFunctionIsAsExactAsStated) {
  auto const g = floats();
  std::vector<float> pairs;
  std::vector<double> expected;
  for (auto const number : g)
    if (std::abs(number) < 80 &&
        std::abs(number) > 1e-30F) { // its exponential and the product are normal numbers
      pairs.push_back(number);
      pairs.push_back(1.0F);
      expected.push_back(static_cast<double>(number) / (1 + std::exp(-static_cast<double>(number))));
    }
  std::vector<float> y(expected.size());
  best_token_kernels<float>().swiglu({pairs.data(), nullptr, y.data()}, 0,
                                     static_cast<std::int64_t>(y.size()));
  auto worst = 0.0;
  for (std::size_t i = 0; i < y.size(); ++i)
    worst = larger(worst, std::abs(static_cast<double>(y[i]) / expected[i] - 1));
  EXPECT_LE(worst, 6 * unit) << worst / unit; // the logistic function's four, and two products
}

TEST(TokenKernels, NumbersThatAreNoneStayNone) {
  auto const nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> const z(40, nan), ones(40, 1.0F);
  for (auto const& kernels : supported_token_kernels<float>()) {
    std::vector<float> y(40), pairs(20), gradient(40);
    kernels.gelu({z.data(), nullptr, y.data()}, 0, 40);
    kernels.swiglu({z.data(), nullptr, pairs.data()}, 0, 20);
    kernels.gelu_backward({z.data(), ones.data(), gradient.data()}, 0, 40);
    for (std::size_t i = 0; i < 40; ++i)
      EXPECT_TRUE(std::isnan(y[i]) && std::isnan(pairs[i / 2]) && std::isnan(gradient[i])) << i;
  }
}

} // namespace
} // namespace orthant::testing
