// SPDX-License-Identifier: Apache-2.0
//
// Row and element-wise kernels of devices, against serial loops. They run on the default execution space, so
// that a machine without a device covers them too, with teams of one thread.
#include "pmm/rows/column_sums.hpp"
#include "pmm/rows/row_loss_kernels.hpp"
#include "support/dist_checks.hpp"

#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <tuple>
#include <vector>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;

template<class T>
std::vector<T> integers(std::uint64_t seed, std::int64_t count) {
  std::vector<T> result;
  for (std::int64_t i = 0; i < count; ++i)
    result.push_back(static_cast<T>(small_integer(seed, i, 0)));
  return result;
}

template<class T>
std::vector<T> to_host(Vector<T> const& view) {
  auto const host = host_copy(view);
  return std::vector<T>(host.data(), host.data() + host.size());
}

template<class T>
Matrix<T> as_matrix_of(Vector<T> const& numbers, std::int64_t num_columns) {
  auto const columns = static_cast<std::size_t>(num_columns);
  return Matrix<T>(numbers.data(), columns == 0 ? 0 : numbers.extent(0) / columns, columns);
}

TEST(Divisor, EqualsDivision) {
  for (std::int64_t const divisor : {1, 2, 3, 4, 7, 47, 100, 128, 300, 1023, 1 << 20})
    for (std::int64_t const base : {std::int64_t{0}, divisor, 1000 * divisor, std::int64_t{1} << 31,
                                    std::int64_t{2'450'000} * 1024, std::int64_t{1} << 42})
      for (std::int64_t const n : {base - 1, base, base + 1})
        if (n >= 0) {
          Divisor const by(divisor);
          EXPECT_EQ(by.quotient(n), n / divisor) << n << " / " << divisor;
          Place const place(n, by);
          EXPECT_EQ(place.column, n % divisor) << n << " / " << divisor;
        }
}

template<class T>
class DeviceRowsTest : public ::testing::Test {
 protected:
  DefaultExec exec_;
};
using Scalars = ::testing::Types<float, double>;
TYPED_TEST_SUITE(DeviceRowsTest, Scalars);

TYPED_TEST(DeviceRowsTest, ColumnSumsAreExactForAnyShapeAndAlignment) {
  using T = TypeParam;
  for (std::int64_t const num_rows : {0, 1, 3, 31, 33, 300, 4099})
    for (std::int64_t const num_columns : {1, 2, 3, 4, 47, 64, 100, 128, 300, 1030})
      for (std::size_t const offset : {0, 1}) {
        if (num_rows * num_columns > 1'300'000) continue;
        auto const count = num_rows * num_columns;
        auto const numbers = integers<T>(70, count);
        Vector<T> const memory("orthant::testing::memory", static_cast<std::size_t>(count) + offset);
        Vector<T> const part(memory.data() + offset, static_cast<std::size_t>(count));
        Kokkos::deep_copy(part, device_copy(numbers));
        Matrix<T> const from(part.data(), static_cast<std::size_t>(num_rows),
                             static_cast<std::size_t>(num_columns));
        ColumnSlabs const slabs(num_rows, num_columns);
        auto const scratch = static_cast<std::size_t>(slabs.num_partial_sums());
        auto const partial = device_copy(std::vector<T>(scratch, std::numeric_limits<T>::quiet_NaN()));
        auto const sums = device_copy(std::vector<T>(static_cast<std::size_t>(num_columns), T{7}));

        sum_columns_in_slabs(this->exec_, "orthant::testing::sum", slabs, LoadedPack<T>(from), partial, sums);

        std::vector<T> expected(static_cast<std::size_t>(num_columns), T{0});
        for (std::size_t k = 0; k < numbers.size(); ++k)
          expected[k % expected.size()] += numbers[k];
        EXPECT_EQ(to_host(sums), expected)
            << num_rows << " x " << num_columns << ", " << slabs.num_slabs << " slabs, offset " << offset;
      }
}

TEST(ColumnSlabs, ShareTheLinesOut) {
  for (std::int64_t const num_rows : {0, 1, 31, 32, 33, 100'000, 2'450'000})
    for (std::int64_t const num_columns : {1, 2, 4, 47, 128}) {
      ColumnSlabs const slabs(num_rows, num_columns);
      EXPECT_GE(slabs.num_slabs * slabs.lines_per_slab * slabs.rows_per_line, num_rows);
      EXPECT_LT((slabs.num_slabs - 1) * slabs.lines_per_slab, std::max(std::int64_t{1}, slabs.num_lines));
      EXPECT_LE(slabs.num_slabs, ColumnSlabs::most_slabs);
      EXPECT_EQ(slabs.packs_per_line * pack_size, slabs.rows_per_line * num_columns);
    }
  EXPECT_GT(ColumnSlabs(300, 47).num_slabs, 2);
}

TYPED_TEST(DeviceRowsTest, ABiasIsAddedToEveryRow) {
  using T = TypeParam;
  for (std::int64_t const num_rows : {0, 1, 9})
    for (std::int64_t const num_columns : {1, 3, 4, 47, 100}) {
      auto const numbers = integers<T>(71, num_rows * num_columns);
      auto const bias = integers<T>(72, num_columns);
      auto const z = device_copy(numbers);

      for_each_pack(this->exec_, "orthant::testing::add_bias", num_rows * num_columns,
                    AddBiasToPack<T>(as_matrix_of(z, num_columns), device_copy(bias)));

      auto expected = numbers;
      for (std::size_t k = 0; k < expected.size(); ++k)
        expected[k] += bias[k % bias.size()];
      EXPECT_EQ(to_host(z), expected) << num_rows << " x " << num_columns;
    }
}

/// Rows of logits with ties, infinities, and targets of every kind.
template<class T>
struct SoftmaxCase {
  std::int64_t num_rows = 23;
  std::int64_t num_columns;
  std::vector<T> logits;
  std::vector<std::int8_t> groups;
  std::vector<std::int32_t> classes;
  RowTargets targets;

  explicit SoftmaxCase(std::int64_t columns) : num_columns(columns), logits(integers<T>(73, 23 * columns)) {
    for (std::int64_t i = 0; i < num_rows; ++i) {
      groups.push_back(static_cast<std::int8_t>(static_cast<int>(mixed(74, i) % 4) - 1));
      classes.push_back(static_cast<std::int32_t>(mixed(75, i) % static_cast<std::uint64_t>(columns + 1)) -
                        1);
    }
    if (columns > 1) logits[0] = -std::numeric_limits<T>::infinity();
    targets.groups = device_copy(groups);
    targets.classes = device_copy(classes);
  }
  [[nodiscard]] T at(std::int64_t i, std::int64_t j) const {
    return logits[static_cast<std::size_t>(i * num_columns + j)];
  }
  [[nodiscard]] T largest(std::int64_t i) const {
    auto result = -std::numeric_limits<T>::infinity();
    for (std::int64_t j = 0; j < num_columns; ++j)
      result = std::max(result, at(i, j));
    return result;
  }
  [[nodiscard]] double sum(std::int64_t i) const {
    auto result = 0.0;
    auto const shift = static_cast<double>(largest(i));
    for (std::int64_t j = 0; j < num_columns; ++j)
      result += std::exp(static_cast<double>(at(i, j)) - shift);
    return result;
  }
};

constexpr std::array<std::int64_t, 8> class_counts{1, 3, 4, 7, 47, 64, 128, 300};

TYPED_TEST(DeviceRowsTest, SoftmaxInOnePassAndInThreeFollowTheFormula) {
  using T = TypeParam;
  auto const tolerance = 64 * static_cast<double>(std::numeric_limits<T>::epsilon());
  for (auto const num_columns : class_counts)
    for (auto const& [in_one_pass, smoothing, z_loss] :
         {std::tuple(true, 0.0, 0.0), std::tuple(false, 0.0, 0.0), std::tuple(true, 0.25, 0.0),
          std::tuple(false, 0.25, 0.0), std::tuple(true, 0.25, 0.1), std::tuple(false, 0.0, 0.1)}) {
      SoftmaxCase<T> const of(num_columns);
      auto const of_classes = smoothing / static_cast<double>(num_columns);
      TargetShares<T> shares{static_cast<T>(1 - smoothing), static_cast<T>(of_classes)};
      shares.z_loss = static_cast<T>(z_loss);
      auto const rows = static_cast<std::size_t>(of.num_rows);
      auto const numbers = device_copy(of.logits);
      auto const logits = as_matrix_of(numbers, num_columns);
      Vector<T> const row_max("orthant::testing::row_max", rows);
      Vector<T> const packed_numbers("orthant::testing::packed", 2 * rows);
      auto const packed = as_matrix_of(packed_numbers, 2);

      // In place.
      if (in_one_pass) {
        detail::softmax_in_one_pass(this->exec_, logits, of.targets, shares, row_max, packed, T(0.125),
                                    logits);
      } else {
        detail::find_row_maxima(this->exec_, logits, row_max);
        detail::sum_exponentials(this->exec_, logits, row_max, of.targets, 0, shares, packed);
        detail::softmax_gradient(this->exec_, logits, row_max, packed, of.targets, 0, shares, T(0.125),
                                 logits);
      }

      auto const gradient = to_host(numbers);
      auto const sums = to_host(packed_numbers);
      for (std::int64_t i = 0; i < of.num_rows; ++i) {
        auto const row = static_cast<std::size_t>(i);
        auto const carries_loss = of.groups[row] == 0 && of.classes[row] >= 0;
        auto const sum = of.sum(i);
        auto const largest = of.largest(i);
        if (carries_loss) {
          EXPECT_NEAR(static_cast<double>(sums[2 * row]), sum, tolerance * sum);
          auto expected = (1 - smoothing) * static_cast<double>(of.at(i, of.classes[row]) - largest);
          for (std::int64_t j = 0; smoothing > 0 && j < num_columns; ++j)
            expected += of_classes * static_cast<double>(of.at(i, j) - largest);
          if (std::isinf(expected))
            EXPECT_EQ(static_cast<double>(sums[2 * row + 1]), expected);
          else
            EXPECT_NEAR(static_cast<double>(sums[2 * row + 1]), expected,
                        smoothing * tolerance * (1 + std::abs(expected)));
        }
        for (std::int64_t j = 0; j < num_columns; ++j) {
          auto const factor =
              z_loss > 0 ? 1 + 2 * z_loss * (static_cast<double>(largest) + std::log(sum)) : 1;
          auto const share = factor * std::exp(static_cast<double>(of.at(i, j) - largest)) / sum;
          auto const expected =
              carries_loss ? 0.125 * (share - (j == of.classes[row] ? 1 - smoothing : 0) - of_classes) : 0.0;
          EXPECT_NEAR(
              static_cast<double>(
                  gradient[row * static_cast<std::size_t>(num_columns) + static_cast<std::size_t>(j)]),
              expected, tolerance)
              << num_columns << " classes, row " << i << ", one pass " << in_one_pass;
        }
      }
    }
}

TYPED_TEST(DeviceRowsTest, WithoutAGradientAllRowsAreSummed) {
  using T = TypeParam;
  SoftmaxCase<T> const of(47);
  auto const numbers = device_copy(of.logits);
  Vector<T> const packed("orthant::testing::packed", 2 * static_cast<std::size_t>(of.num_rows));
  Vector<T> const row_max("orthant::testing::row_max", static_cast<std::size_t>(of.num_rows));

  detail::softmax_in_one_pass(this->exec_, as_matrix_of(numbers, 47), of.targets, {}, row_max,
                              as_matrix_of(packed, 2), T{0}, Matrix<T>());

  EXPECT_EQ(to_host(numbers), of.logits);
  auto const sums = to_host(packed);
  for (std::int64_t i = 0; i < of.num_rows; ++i)
    EXPECT_NEAR(static_cast<double>(sums[2 * static_cast<std::size_t>(i)]), of.sum(i), 1e-5 * of.sum(i)) << i;
}

TYPED_TEST(DeviceRowsTest, TheSmallestOfEqualClassesIsFoundAndANaNIsNoMaximum) {
  using T = TypeParam;
  constexpr auto infinity = std::numeric_limits<T>::infinity();
  constexpr auto none = std::numeric_limits<std::int64_t>::max();
  for (auto const num_columns : class_counts) {
    SoftmaxCase<T> of(num_columns);
    auto const row = [&](std::int64_t i) { return of.logits.begin() + i * num_columns; };
    std::fill(row(1), row(2), std::numeric_limits<T>::quiet_NaN());
    std::fill(row(2), row(3), -infinity);
    std::fill(row(3), row(4), T{-5});
    *row(4) = std::numeric_limits<T>::quiet_NaN();
    std::vector<T> largest;
    std::vector<std::int64_t> classes;
    for (std::int64_t i = 0; i < of.num_rows; ++i) {
      largest.push_back(-infinity);
      classes.push_back(none);
      for (std::int64_t j = 0; j < num_columns; ++j)
        if (of.at(i, j) > largest.back()) {
          largest.back() = of.at(i, j);
          classes.back() = 10 + j;
        }
    }
    auto const numbers = device_copy(of.logits);
    auto const logits = as_matrix_of(numbers, num_columns);
    auto const rows = static_cast<std::size_t>(of.num_rows);
    Vector<T> const row_max("orthant::testing::row_max", rows);
    Vector<runtime::ValueIndex<T>> const alone("orthant::testing::arg_max", rows);
    Vector<runtime::ValueIndex<T>> const in_teams("orthant::testing::arg_max", rows);

    detail::find_row_maxima(this->exec_, logits, row_max);
    detail::find_row_arg_maxima(this->exec_, logits, 10, alone);
    for_each_row(this->exec_, "orthant::testing::arg_maxima", of.num_rows, num_columns,
                 detail::RowArgMaxima<T>{logits, 10, in_teams});

    EXPECT_EQ(to_host(row_max), largest) << num_columns;
    for (auto const& found : {to_host(alone), to_host(in_teams)})
      for (std::size_t i = 0; i < rows; ++i) {
        EXPECT_EQ(found[i].value, largest[i]) << num_columns << " classes, row " << i;
        EXPECT_EQ(found[i].index, classes[i]) << num_columns << " classes, row " << i;
      }
  }
}

} // namespace
} // namespace orthant::testing
