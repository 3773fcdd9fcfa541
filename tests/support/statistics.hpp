#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What tests of random numbers need: the chi-square statistic and its distribution.

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>

namespace orthant::test {

/// P(X > x) for X chi-square distributed: Q(freedom/2, x/2), the regularised incomplete gamma function, by
/// its series where that converges fast and by Lentz's continued fraction elsewhere.
inline double chi_square_tail(double x, double freedom) {
  auto const a = freedom / 2;
  auto const z = x / 2;
  if (z <= 0) return 1;
  auto const front = std::exp(a * std::log(z) - z - std::lgamma(a));
  if (z < a + 1) {
    double term = 1 / a;
    double sum = term;
    for (double n = a + 1; std::fabs(term) > std::fabs(sum) * 1e-15; ++n)
      sum += term *= z / n;
    return 1 - front * sum;
  }
  constexpr double tiny = std::numeric_limits<double>::min() * 1e10;
  double b = z + 1 - a;
  double c = 1 / tiny;
  double d = 1 / b;
  double h = d;
  for (int i = 1; i < 100000; ++i) {
    auto const an = -i * (i - a);
    b += 2;
    d = an * d + b;
    if (std::fabs(d) < tiny) d = tiny;
    c = b + an / c;
    if (std::fabs(c) < tiny) c = tiny;
    d = 1 / d;
    auto const factor = c * d;
    h *= factor;
    if (std::fabs(factor - 1) < 1e-14) break;
  }
  return front * h;
}

/// Sum over cells of (count - mean count)^2 / variance, `variance` that of one cell about the mean of all:
/// 'the mean count' itself for a multinomial draw. Its freedom is counts.size() - 1.
inline double chi_square_statistic(std::span<std::int64_t const> counts, double variance) {
  auto const total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  auto const mean = static_cast<double>(total) / static_cast<double>(counts.size());
  double statistic = 0;
  for (auto const count : counts) {
    auto const difference = static_cast<double>(count) - mean;
    statistic += difference * difference / variance;
  }
  return statistic;
}

/// P-value of equally likely cells: near 0 where counts vary too much, near 1 where too little.
inline double uniform_p_value(std::span<std::int64_t const> counts) {
  auto const total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  auto const mean = static_cast<double>(total) / static_cast<double>(counts.size());
  return chi_square_tail(chi_square_statistic(counts, mean), static_cast<double>(counts.size() - 1));
}

} // namespace orthant::test
