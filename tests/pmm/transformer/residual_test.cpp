// SPDX-License-Identifier: Apache-2.0
//
// Dropout of rows of tokens, added to a residual stream or alone: to the bit what the stream of random numbers says.
#include "pmm/token_rows/feed_forward.hpp"
#include "runtime/error.hpp"
#include "support/dist_checks.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;

template<class T>
Matrix<T> as_matrix(Vector<T> const& numbers, std::int64_t rows, std::int64_t columns) {
  return Matrix<T>(numbers.data(), static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
}

template<class T>
class ResidualTest : public ::testing::Test {};
using Scalars = ::testing::Types<float, double>;
TYPED_TEST_SUITE(ResidualTest, Scalars);

TYPED_TEST(ResidualTest, DropsByTokenAndGlobalColumn) {
  using T = TypeParam;
  for (std::int64_t const rows : {0, 1, 7})
    for (std::int64_t const columns : {1, 3, 32, 130})
      for (std::int64_t const first_column : {0, 6, 129})
        for (double const probability : {0.0, 0.25, 0.9}) {
          std::vector<T> base, from;
          std::vector<std::int64_t> ids;
          for (std::int64_t i = 0; i < rows; ++i) {
            ids.push_back((std::int64_t{1} << 33) + 5 * i);
            for (std::int64_t j = 0; j < columns; ++j) {
              base.push_back(static_cast<T>(small_real(41, i, j)));
              from.push_back(static_cast<T>(small_real(42, i, j)));
            }
          }
          RowDropout dropout{
              probability, {9, runtime::Purpose::dropout, 3, 1}, device_copy(ids), first_column};
          if (probability == 0) dropout.token_ids = {};
          auto const sum = device_copy(base); // in place
          auto const alone = device_copy(from);
          auto const source = device_copy(from);
          DefaultExec const exec;
          std::vector<runtime::LocalPass> counted;
          runtime::PassLedger passes;
          passes.list = &counted;

          add_dropped(exec, passes, as_matrix(sum, rows, columns), as_matrix(source, rows, columns), dropout,
                      as_matrix(sum, rows, columns));
          drop_rows(exec, passes, as_matrix(alone, rows, columns), dropout, as_matrix(alone, rows, columns));

          auto const of_sum = host_copy(sum);
          auto const of_alone = host_copy(alone);
          auto const scale = static_cast<T>(1 / (1 - probability));
          for (std::int64_t i = 0; i < rows; ++i)
            for (std::int64_t j = 0; j < columns; ++j) {
              auto const k = static_cast<std::size_t>(i * columns + j);
              auto const is_dropped = dropout.stream.bernoulli(
                  probability, static_cast<std::uint64_t>(ids[static_cast<std::size_t>(i)]),
                  static_cast<std::uint64_t>(first_column + j));
              auto const kept = is_dropped ? T{0} : from[k] * scale;
              EXPECT_EQ(of_alone(k), kept) << i << ", " << j;
              EXPECT_EQ(of_sum(k), kept + base[k]) << i << ", " << j;
            }
          StepPlan step({1, 1, 1, 1}, {}, sizeof(T));
          plan_add_dropped(step, rows, columns, probability > 0);
          plan_drop_rows(step, rows, columns, probability > 0);
          EXPECT_EQ(passes_of(step), counted);
        }
}

TEST(Residual, WhatDoesNotFitIsRefused) {
  DefaultExec const exec;
  runtime::PassLedger passes;
  Matrix<float> const x("orthant::testing::x", 3, 4), y("orthant::testing::y", 3, 5);
  EXPECT_THROW(add_dropped(exec, passes, x, y, {}, x), runtime::Error);
  RowDropout dropout;
  dropout.probability = 0.5; // and no ids
  EXPECT_THROW(drop_rows(exec, passes, x, dropout, x), runtime::Error);
  dropout.token_ids = Vector<std::int64_t>("orthant::testing::ids", 3);
  dropout.probability = 1;
  EXPECT_THROW(drop_rows(exec, passes, x, dropout, x), runtime::Error);
}

} // namespace
} // namespace orthant::testing
