// SPDX-License-Identifier: Apache-2.0
//
// Row kernels of host processors: every instruction set gives the same bits, and exponentials are exact to
// 2 units in the last place.
#include "pmm/kernels/row_kernels_host.hpp"

#include "support/reference.hpp"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

namespace orthant::testing {
namespace {

using namespace orthant::pmm::host_rows;

constexpr std::int64_t num_rows = 7;

template<class T>
std::vector<T> numbers(std::uint64_t seed, std::int64_t count) {
  std::vector<T> result;
  for (std::int64_t i = 0; i < count; ++i)
    result.push_back(static_cast<T>(5 * small_real(seed, i, 0)));
  return result;
}

template<class T>
bool are_equal_bits(std::vector<T> const& x, std::vector<T> const& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
}

template<class T>
class RowKernelsTest : public ::testing::Test {};
using Scalars = ::testing::Types<float, double>;
TYPED_TEST_SUITE(RowKernelsTest, Scalars);

TYPED_TEST(RowKernelsTest, EveryInstructionSetGivesTheSameBits) {
  using T = TypeParam;
  auto const all = supported_row_kernels<T>();
  for (std::int64_t const columns : {1, 3, 16, 47, 100, 130}) {
    auto const z = numbers<T>(80, num_rows * columns);
    auto const bias = numbers<T>(81, columns);
    std::vector<std::int64_t> const keys{5, 0, 1, std::int64_t{1} << 40, 77, 3, 2};
    std::vector<std::int8_t> const splits{0, 0, 1, 0, -1, 0, 0};
    std::vector<std::int32_t> const classes{0, -1, 0, 0, 0, static_cast<std::int32_t>(columns) - 1, 2};
    struct Results {
      std::vector<T> active, gradient, sums, row_max, packed, loss_gradient;
    };
    std::vector<Results> results;
    for (auto const& kernels : all) {
      Results r{z, numbers<T>(82, num_rows * columns), bias, bias, bias, z};
      r.row_max.resize(num_rows);
      r.packed.resize(2 * num_rows);
      kernels.activate(
          {columns, z.data(), r.active.data(), bias.data(), keys.data(), 6, 99, 1U << 30, T(1.5), true}, 0,
          num_rows);
      kernels.activate_backward(
          {num_rows, columns, r.active.data(), r.gradient.data(), r.sums.data(), T(1.5)}, 0, columns);
      HostSoftmax<T> const softmax{static_cast<std::size_t>(columns),
                                   z.data(),
                                   r.row_max.data(),
                                   r.packed.data(),
                                   r.loss_gradient.data(),
                                   splits.data(),
                                   classes.data(),
                                   0,
                                   T(0.125)};
      kernels.find_maxima(softmax, 0, num_rows);
      kernels.sum_exponentials(softmax, 0, num_rows);
      kernels.finish_gradient(softmax, 0, num_rows);
      results.push_back(r);
    }

    for (auto const& r : results) {
      auto const& baseline = results.front();
      EXPECT_TRUE(are_equal_bits(r.active, baseline.active)) << columns;
      EXPECT_TRUE(are_equal_bits(r.gradient, baseline.gradient)) << columns;
      EXPECT_TRUE(are_equal_bits(r.sums, baseline.sums)) << columns;
      EXPECT_TRUE(are_equal_bits(r.row_max, baseline.row_max)) << columns;
      EXPECT_TRUE(are_equal_bits(r.packed, baseline.packed)) << columns;
      EXPECT_TRUE(are_equal_bits(r.loss_gradient, baseline.loss_gradient)) << columns;
    }
  }
}

/// exp(x) of each x as a row of one column whose maximum is 0.
template<class T>
std::vector<T> exponentials(HostRowKernels<T> const& kernels, std::vector<T> const& x) {
  std::vector<T> row_max(x.size()), packed(2 * x.size()), result(x.size());
  std::vector<std::int8_t> const splits(x.size(), 0);
  std::vector<std::int32_t> const classes(x.size(), 1);
  kernels.sum_exponentials(
      {1, x.data(), row_max.data(), packed.data(), result.data(), splits.data(), classes.data(), 0, T{1}}, 0,
      static_cast<std::int64_t>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i)
    EXPECT_TRUE(result[i] == packed[2 * i] || std::isnan(result[i]));
  return result;
}

TYPED_TEST(RowKernelsTest, ExponentialsAreExactToTwoUnits) {
  using T = TypeParam;
  std::vector<T> x;
  for (int i = -104'000; i <= 88'000; ++i) // denormal results to the largest
    x.push_back(static_cast<T>(i + 0.37) / T{1000});
  for (auto const& kernels : supported_row_kernels<T>()) {
    auto const result = exponentials(kernels, x);

    auto largest_error = 0.0L;
    for (std::size_t i = 0; i < x.size(); ++i) {
      auto const exact = std::exp(static_cast<long double>(x[i]));
      auto const unit = static_cast<long double>(
          std::nextafter(static_cast<T>(exact), std::numeric_limits<T>::infinity()) - static_cast<T>(exact));
      largest_error = std::max(largest_error, std::fabs(static_cast<long double>(result[i]) - exact) / unit);
    }
    EXPECT_LE(largest_error, 2);
  }
}

TYPED_TEST(RowKernelsTest, ExponentialsOfWhatIsNoOrdinaryNumber) {
  using T = TypeParam;
  constexpr auto infinity = std::numeric_limits<T>::infinity();
  for (auto const& kernels : supported_row_kernels<T>()) {
    auto const result =
        exponentials<T>(kernels, {0, -infinity, infinity, T(1e30), T(-1e30),
                                  std::numeric_limits<T>::quiet_NaN(), -std::numeric_limits<T>::quiet_NaN()});

    EXPECT_EQ(result[0], 1);
    EXPECT_EQ(result[1], 0);
    EXPECT_EQ(result[2], infinity);
    EXPECT_EQ(result[3], infinity);
    EXPECT_EQ(result[4], 0);
    EXPECT_TRUE(std::isnan(result[5]));
    EXPECT_TRUE(std::isnan(result[6]));
  }
}

} // namespace
} // namespace orthant::testing
