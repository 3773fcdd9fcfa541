// SPDX-License-Identifier: Apache-2.0
//
// Row kernels of host processors: every instruction set gives the same bits, and exponentials are exact to
// 2 units in the last place.
#include "pmm/kernels/row_kernels_host.hpp"

#include "runtime/numbers/random.hpp"
#include "support/kernel_numbers.hpp"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

namespace orthant::testing {
namespace {

using namespace orthant::pmm::host_rows;

constexpr std::int64_t rows_of_test = 7;

template<class T>
class RowKernelsTest : public ::testing::Test {};
using Scalars = ::testing::Types<float, double>;
TYPED_TEST_SUITE(RowKernelsTest, Scalars);

TYPED_TEST(RowKernelsTest, EveryInstructionSetGivesTheSameBits) {
  using T = TypeParam;
  auto const all = supported_row_kernels<T>();
  for (std::int64_t const columns : {1, 3, 16, 47, 100, 130}) {
    auto const z = numbers<T>(80, rows_of_test * columns);
    auto const bias = numbers<T>(81, columns);
    std::vector<std::int64_t> const keys{5, 0, 1, std::int64_t{1} << 40, 77, 3, 2};
    std::vector<std::int8_t> const splits{0, 0, 1, 0, -1, 0, 0};
    std::vector<std::int32_t> const classes{0, -1, 0, 0, 0, static_cast<std::int32_t>(columns) - 1, 2};
    struct Results {
      std::vector<T> active, gradient, sums, row_max, packed, loss_gradient, smooth_packed, smooth_gradient;
    };
    std::vector<Results> results;
    for (auto const& kernels : all) {
      Results r{z, numbers<T>(82, rows_of_test * columns), bias, bias, bias, z, bias, z};
      r.row_max.resize(rows_of_test);
      r.packed.resize(2 * rows_of_test);
      r.smooth_packed.resize(2 * rows_of_test);
      kernels.activate(
          {columns, z.data(), r.active.data(), bias.data(), keys.data(), 6, 99, 1U << 30, T(1.5), true}, 0,
          rows_of_test);
      kernels.activate_backward(
          {rows_of_test, columns, r.active.data(), r.gradient.data(), r.sums.data(), T(1.5)}, 0, columns);
      HostSoftmax<T> const softmax{static_cast<std::size_t>(columns),
                                   z.data(),
                                   r.row_max.data(),
                                   r.packed.data(),
                                   r.loss_gradient.data(),
                                   splits.data(),
                                   classes.data(),
                                   0,
                                   T(0.125)};
      kernels.find_maxima(softmax, 0, rows_of_test);
      kernels.sum_exponentials(softmax, 0, rows_of_test);
      kernels.finish_gradient(softmax, 0, rows_of_test);
      auto smooth = softmax;
      smooth.packed = r.smooth_packed.data();
      smooth.gradient = r.smooth_gradient.data();
      smooth.of_label = T(0.9);
      smooth.of_classes = T(0.1) / static_cast<T>(columns);
      smooth.z_loss = T(0.01);
      kernels.sum_exponentials(smooth, 0, rows_of_test);
      kernels.finish_gradient(smooth, 0, rows_of_test);
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
      EXPECT_TRUE(are_equal_bits(r.smooth_packed, baseline.smooth_packed)) << columns;
      EXPECT_TRUE(are_equal_bits(r.smooth_gradient, baseline.smooth_gradient)) << columns;
    }
  }
}

template<class T>
struct NormResults {
  std::vector<T> inverse_rms, result, row_sums, z_gradient, factor_gradient;
  std::vector<std::uint32_t> passed;

  bool operator==(NormResults const& other) const {
    return are_equal_bits(inverse_rms, other.inverse_rms) && are_equal_bits(result, other.result) &&
           are_equal_bits(row_sums, other.row_sums) && are_equal_bits(z_gradient, other.z_gradient) &&
           are_equal_bits(factor_gradient, other.factor_gradient) && passed == other.passed;
  }
};

/// Element by element, every sum in the order of its elements. Element (i, j) is dropped if `drops`.
template<class T, class Drops>
NormResults<T> plain_norm(HostNorm<T> const& a, std::int64_t rows, std::vector<T> const& gradient,
                          Drops const& drops) {
  auto const columns = a.num_columns;
  auto const words = (columns + 31) / 32;
  NormResults<T> r;
  r.result.resize(static_cast<std::size_t>(rows * columns));
  r.z_gradient.resize(r.result.size());
  r.passed.resize(static_cast<std::size_t>(rows * words));
  std::vector<T> sums(static_cast<std::size_t>(columns));
  for (std::int64_t i = 0; i < rows; ++i) {
    auto const* const z = a.z + i * columns;
    T squares = 0;
    for (std::int64_t j = 0; j < columns; ++j)
      squares += z[j] * z[j];
    auto const rms = T{1} / std::sqrt(squares * a.inverse_width + a.epsilon);
    r.inverse_rms.push_back(rms);
    T sum = 0;
    for (std::int64_t j = 0; j < columns; ++j) {
      auto const at = static_cast<std::size_t>(i * columns + j);
      auto const n = rms * z[j] * a.factors[j];
      auto const d = drops(i, j) || n < 0 ? T{0} : n * a.keep_scale;
      r.result[at] = a.addend == nullptr ? d : a.addend[at] + d;
      auto const passes = n > 0 && !drops(i, j);
      if (passes) r.passed[static_cast<std::size_t>(i * words + j / 32)] |= std::uint32_t{1} << (j % 32);
      auto const dn = passes ? gradient[at] * a.keep_scale : T{0};
      sum += dn * a.factors[j] * z[j];
      sums[static_cast<std::size_t>(j)] += dn * rms * z[j];
      r.z_gradient[at] = dn;
    }
    r.row_sums.push_back(sum * rms);
    auto const along = rms * r.row_sums.back() * a.inverse_width;
    for (std::int64_t j = 0; j < columns; ++j) {
      auto& dz = r.z_gradient[static_cast<std::size_t>(i * columns + j)];
      dz = rms * (dz * a.factors[j] - z[j] * along);
    }
  }
  r.factor_gradient = sums;
  return r;
}

/// In place of addend and gradient, or beside them.
template<class T>
NormResults<T> norm_by(HostRowKernels<T> const& kernels, HostNorm<T> a, std::int64_t rows,
                       std::vector<T> const& gradient, bool in_place, bool sums_rows) {
  auto const columns = a.num_columns;
  auto const size = static_cast<std::size_t>(rows * columns);
  NormResults<T> r;
  r.inverse_rms.resize(static_cast<std::size_t>(rows));
  r.row_sums.resize(static_cast<std::size_t>(rows));
  r.passed.assign(static_cast<std::size_t>(rows * ((columns + 31) / 32)), 0xABCDu);
  r.result.assign(size, T{9});
  r.z_gradient = in_place ? gradient : std::vector<T>(size, T{9});
  r.factor_gradient.resize(static_cast<std::size_t>(columns));
  if (in_place && a.addend != nullptr) {
    r.result.assign(a.addend, a.addend + size);
    a.addend = r.result.data();
  }
  a.inverse_rms = r.inverse_rms.data();
  a.passed = r.passed.data();
  a.result = r.result.data();
  a.has_squares = !sums_rows;
  if (a.has_squares) kernels.square_rows(a, 0, rows);
  kernels.normalise(a, 0, rows / 2);
  kernels.normalise(a, rows / 2, rows);

  HostNormBackward<T> b{rows,
                        columns,
                        a.z,
                        a.factors,
                        a.inverse_width,
                        a.keep_scale,
                        a.inverse_rms,
                        r.passed.data(),
                        nullptr,
                        r.row_sums.data(),
                        r.z_gradient.data(),
                        r.factor_gradient.data(),
                        sums_rows};
  b.gradient = in_place ? r.z_gradient.data() : gradient.data();
  if (sums_rows) {
    kernels.normalise_backward(b, 0, columns);
    return r;
  }
  kernels.sum_norm_gradient(b, 0, rows / 3);
  kernels.sum_norm_gradient(b, rows / 3, rows);
  auto const middle = std::min<std::int64_t>(columns, 32); // columns of two threads
  kernels.normalise_backward(b, 0, middle);
  kernels.normalise_backward(b, middle, columns);
  return r;
}

TYPED_TEST(RowKernelsTest, NormsAreThoseOfPlainLoopsToTheBit) {
  using T = TypeParam;
  for (std::int64_t const rows : {1, 7, 8, 27})
    for (std::int64_t const columns : {1, 3, 32, 47, 100, 130, 600})
      for (bool const is_dropped : {false, true})
        for (bool const has_addend : {false, true}) {
          auto const z = numbers<T>(83, rows * columns);
          auto const factors = numbers<T>(84, columns);
          auto const addend = numbers<T>(85, rows * columns);
          auto const gradient = numbers<T>(86, rows * columns);
          std::vector<std::int64_t> keys;
          for (std::int64_t i = 0; i < rows; ++i)
            keys.push_back(i * i + (i % 3 << 40));
          orthant::runtime::RandomStream const stream(5, orthant::runtime::Purpose::dropout);
          HostNorm<T> a;
          a.num_columns = columns;
          a.z = z.data();
          a.factors = factors.data();
          a.inverse_width = T{1} / static_cast<T>(columns);
          a.epsilon = T(1e-6);
          a.keep_scale = is_dropped ? T(1.25) : T{1};
          a.row_keys = is_dropped ? keys.data() : nullptr;
          a.first_column = 6;
          a.key = stream.key();
          a.last_dropped = 858993458; // p = 0.2
          a.addend = has_addend ? addend.data() : nullptr;
          auto const drops = [&](std::int64_t i, std::int64_t j) {
            return is_dropped &&
                   stream.bernoulli(0.2, static_cast<std::uint64_t>(keys[static_cast<std::size_t>(i)]),
                                    static_cast<std::uint64_t>(6 + j));
          };
          auto const expected = plain_norm(a, rows, gradient, drops);
          for (auto const& kernels : supported_row_kernels<T>())
            for (bool const in_place : {false, true})
              for (bool const sums_rows : {false, true}) {
                if (sums_rows && columns > 512) continue;
                EXPECT_TRUE(norm_by(kernels, a, rows, gradient, in_place, sums_rows) == expected)
                    << rows << " x " << columns << ", dropped " << is_dropped << ", addend " << has_addend
                    << ", in place " << in_place << ", in one pass " << sums_rows;
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
