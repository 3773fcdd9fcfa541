#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Serial loops that the distributed and the tuned versions are compared with, and test data. Numbers are
// small integers: their products and sums are exact in any order, so results are compared with ==.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace orthant::testing {

/// A whole matrix on one rank, row-major.
struct Dense {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<double> numbers;

  Dense(std::int64_t num_rows, std::int64_t num_columns)
      : rows(num_rows),
        columns(num_columns),
        numbers(static_cast<std::size_t>(num_rows) * static_cast<std::size_t>(num_columns)) {}
  [[nodiscard]] double& operator()(std::int64_t i, std::int64_t j) {
    return numbers[static_cast<std::size_t>(i * columns + j)];
  }
  [[nodiscard]] double operator()(std::int64_t i, std::int64_t j) const {
    return numbers[static_cast<std::size_t>(i * columns + j)];
  }
};

/// Well mixed bits of three numbers (SplitMix64).
[[nodiscard]] inline std::uint64_t mixed(std::uint64_t seed, std::int64_t i, std::int64_t j = 0) {
  auto x = seed * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(i) * 0xbf58476d1ce4e5b9U +
           static_cast<std::uint64_t>(j) * 0x94d049bb133111ebU + 0x2545f4914f6cdd1dU;
  for (int round = 0; round < 2; ++round) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    x ^= x >> 31;
  }
  return x;
}

/// An integer in [-3, 3].
[[nodiscard]] inline double small_integer(std::uint64_t seed, std::int64_t i, std::int64_t j) {
  return static_cast<double>(mixed(seed, i, j) % 7) - 3;
}
/// A real in [-1, 1).
[[nodiscard]] inline double small_real(std::uint64_t seed, std::int64_t i, std::int64_t j) {
  return static_cast<double>(mixed(seed, i, j) >> 11) * 0x1p-52 - 1;
}
/// Whether a test matrix has an entry there: about one in three, and some rows without any.
[[nodiscard]] inline bool is_entry(std::uint64_t seed, std::int64_t i, std::int64_t j) {
  return mixed(seed, i, -1) % 5 != 0 && mixed(seed, i, j) % 3 == 0;
}

template<class Function>
[[nodiscard]] Dense make_dense(std::int64_t rows, std::int64_t columns, Function const& value_at) {
  Dense matrix(rows, columns);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      matrix(i, j) = value_at(i, j);
  return matrix;
}

[[nodiscard]] inline Dense transposed(Dense const& a) {
  return make_dense(a.columns, a.rows, [&](std::int64_t i, std::int64_t j) { return a(j, i); });
}

/// A B.
[[nodiscard]] inline Dense product(Dense const& a, Dense const& b) {
  Dense c(a.rows, b.columns);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t k = 0; k < a.columns; ++k)
      for (std::int64_t j = 0; j < b.columns; ++j)
        c(i, j) += a(i, k) * b(k, j);
  return c;
}

/// log sum_j exp(z_ij) - z_iy, by the definition.
[[nodiscard]] inline double softmax_loss(Dense const& logits, std::int64_t row, std::int64_t label) {
  auto largest = logits(row, 0);
  for (std::int64_t j = 1; j < logits.columns; ++j)
    largest = std::max(largest, logits(row, j));
  auto sum = 0.0;
  for (std::int64_t j = 0; j < logits.columns; ++j)
    sum += std::exp(logits(row, j) - largest);
  return std::log(sum) - (logits(row, label) - largest);
}

/// The class of the largest logit; the smallest of equals.
[[nodiscard]] inline std::int64_t arg_max(Dense const& logits, std::int64_t row) {
  std::int64_t best = 0;
  for (std::int64_t j = 1; j < logits.columns; ++j)
    if (logits(row, j) > logits(row, best)) best = j;
  return best;
}

/// -y log sigmoid(x) - (1 - y) log(1 - sigmoid(x)), for x of moderate size.
[[nodiscard]] inline double binary_loss(double x, double y) {
  auto const probability = 1 / (1 + std::exp(-x));
  return -y * std::log(probability) - (1 - y) * std::log(1 - probability);
}

} // namespace orthant::testing
