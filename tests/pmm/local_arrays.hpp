#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Arrays of one rank, made from and compared with serial ones.
#include "support/dist_checks.hpp"

#include <gtest/gtest.h>

#include <string>

namespace orthant::testing {

using pmm::Matrix;
using pmm::Vector;

template<class T>
Matrix<T> device_matrix(Dense const& whole) {
  Matrix<T> matrix("orthant::testing::device_matrix", static_cast<std::size_t>(whole.rows),
                   static_cast<std::size_t>(whole.columns));
  auto const host = Kokkos::create_mirror_view(matrix);
  for (std::int64_t i = 0; i < whole.rows; ++i)
    for (std::int64_t j = 0; j < whole.columns; ++j)
      host(static_cast<std::size_t>(i), static_cast<std::size_t>(j)) =
          T(static_cast<runtime::SumOf<T>>(whole(i, j)));
  Kokkos::deep_copy(matrix, host);
  return matrix;
}

template<class T, class Number>
Vector<T> device_vector(std::size_t length, Number const& number) {
  Vector<T> vector("orthant::testing::device_vector", length);
  auto const host = Kokkos::create_mirror_view(vector);
  for (std::size_t i = 0; i < length; ++i)
    host(i) = number(i);
  Kokkos::deep_copy(vector, host);
  return vector;
}

template<class T>
void expect_equal(Matrix<T> const& matrix, Dense const& whole, std::string const& what) {
  auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, matrix);
  ASSERT_EQ(static_cast<std::int64_t>(host.extent(0)), whole.rows);
  ASSERT_EQ(static_cast<std::int64_t>(host.extent(1)), whole.columns);
  for (std::int64_t i = 0; i < whole.rows; ++i)
    for (std::int64_t j = 0; j < whole.columns; ++j)
      ASSERT_EQ(static_cast<double>(host(static_cast<std::size_t>(i), static_cast<std::size_t>(j))),
                whole(i, j))
          << what << ", row " << i << ", column " << j;
}

} // namespace orthant::testing
