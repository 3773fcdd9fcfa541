// SPDX-License-Identifier: Apache-2.0
//
// Rotary positions beside multiplication of complex numbers, and their transpose.
#include "pmm/attention/attention.hpp"
#include "runtime/error.hpp"
#include "support/dist_checks.hpp"

#include <complex>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;

/// Numbers of `rows` tokens, in a matrix with a column more.
template<class T>
struct Turned {
  std::int64_t rows, columns;
  std::vector<T> before;
  Vector<T> numbers;
  runtime::PassLedger passes;
  DefaultExec exec;

  Turned(std::int64_t num_rows, std::int64_t num_columns) : rows(num_rows), columns(num_columns) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j <= columns; ++j)
        before.push_back(static_cast<T>(small_real(31, i, j)));
    numbers = device_copy(before);
  }
  [[nodiscard]] Panel<T> panel() const {
    Panel<T> result;
    result.data = numbers.data();
    result.num_rows = rows;
    result.num_columns = columns;
    result.row_stride = columns + 1;
    return result;
  }
  [[nodiscard]] std::size_t at(std::int64_t i, std::int64_t j) const {
    return static_cast<std::size_t>(i * (columns + 1) + j);
  }
};

template<class T>
class RotaryTest : public ::testing::Test {};
using Scalars = ::testing::Types<float, double>;
TYPED_TEST_SUITE(RotaryTest, Scalars);

TYPED_TEST(RotaryTest, TurnsPairsAndBack) {
  auto const bound = std::is_same_v<TypeParam, float> ? 4e-7 : 1e-15;
  for (std::int64_t const head_dim : {2, 6, 64})
    for (std::int64_t const sequence : {1, 5, 40})
      for (double const base : {10'000.0, 500'000.0}) {
        RotaryTable<TypeParam> const table(40, head_dim, base);
        Turned<TypeParam> x(3 * sequence, 2 * head_dim);

        rotate<TypeParam>(x.exec, x.passes, table, sequence, Turn::forward, x.panel());

        auto const host = host_copy(x.numbers);
        for (std::int64_t i = 0; i < x.rows; ++i) {
          for (std::int64_t head = 0; head < 2; ++head)
            for (std::int64_t j = 0; j < head_dim / 2; ++j) {
              auto const first = head * head_dim + j;
              auto const second = first + head_dim / 2;
              auto const frequency =
                  std::pow(base, -2.0 * static_cast<double>(j) / static_cast<double>(head_dim));
              std::complex<double> const pair(static_cast<double>(x.before[x.at(i, first)]),
                                              static_cast<double>(x.before[x.at(i, second)]));
              auto const turned = pair * std::polar(1.0, static_cast<double>(i % sequence) * frequency);
              EXPECT_NEAR(static_cast<double>(host(x.at(i, first))), turned.real(), bound) << i << ", " << j;
              EXPECT_NEAR(static_cast<double>(host(x.at(i, second))), turned.imag(), bound) << i << ", " << j;
            }
          EXPECT_EQ(host(x.at(i, x.columns)), x.before[x.at(i, x.columns)]) << "nobody's column";
        }

        rotate<TypeParam>(x.exec, x.passes, table, sequence, Turn::backward, x.panel());
        auto const back = host_copy(x.numbers);
        for (std::size_t k = 0; k < x.before.size(); ++k)
          EXPECT_NEAR(static_cast<double>(back(k)), static_cast<double>(x.before[k]), bound);
      }
}

/// PyTorch 2.15 in fp64: x cos + rotate_half(x) sin at place 3, base 10,000, x = (1, 2, 3, 4).
TEST(Rotary, EqualsLlamasHalves) {
  RotaryTable<double> const table(4, 4, 10'000);
  Turned<double> x(4, 4);
  for (std::int64_t j = 0; j < 4; ++j)
    Kokkos::deep_copy(Kokkos::subview(x.numbers, x.at(3, j)), static_cast<double>(j + 1));
  rotate<double>(x.exec, x.passes, table, 4, Turn::forward, x.panel());
  auto const host = host_copy(x.numbers);
  double const expected[] = {-1.413352520780047, 1.8791180666879925, -2.8288574817414691, 4.0581911354009419};
  for (std::int64_t j = 0; j < 4; ++j)
    EXPECT_NEAR(host(x.at(3, j)), expected[j], 1e-14);
}

TEST(Rotary, ListsWhatItCounts) {
  RotaryTable<float> const table(20, 8, 10'000);
  Turned<float> x(30, 24);
  std::vector<runtime::LocalPass> counted;
  x.passes.list = &counted;
  rotate<float>(x.exec, x.passes, table, 10, Turn::forward, x.panel());
  StepPlan step({1, 1, 1, 1}, {}, sizeof(float));
  plan_rotate(step, 30, 24, 10, 8);
  EXPECT_EQ(passes_of(step), counted);
  plan_rotary_table(step, 20, 8);
  EXPECT_EQ(bytes_held(step), static_cast<std::int64_t>(table.numbers().size() * sizeof(float)));
}

TEST(Rotary, WhatDoesNotFitIsRefused) {
  EXPECT_THROW(RotaryTable<float>(4, 3, 10'000), runtime::Error);
  EXPECT_THROW(RotaryTable<float>(4, 4, 0), runtime::Error);
  RotaryTable<float> const table(4, 4, 10'000);
  Turned<float> x(10, 8);
  EXPECT_THROW(rotate<float>(x.exec, x.passes, table, 5, Turn::forward, x.panel()), runtime::Error);
  EXPECT_THROW(rotate<float>(x.exec, x.passes, table, 4, Turn::forward, x.panel()), runtime::Error);
}

} // namespace
} // namespace orthant::testing
