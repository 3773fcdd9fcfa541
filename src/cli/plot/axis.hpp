#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The range of an axis, and the numbers that are written on it.

#include <string>
#include <utility>
#include <vector>

namespace orthant::cli {

/// Sums and differences of such numbers are finite.
inline constexpr double largest_plotted = 1e300;

/// From the least to the largest of `values`, whose magnitudes are at most largest_plotted; where these are equal but for rounding, a
/// little wider on both sides. From 0 to 1 if there are none.
[[nodiscard]] std::pair<double, double> range_of(std::vector<double> const& values);

class Axis {
 public:
  /// `begin` is less than `end`. `least_ticks` numbers or one less, and at most 2.5 times as many.
  Axis(double begin, double end, int least_ticks);

  /// 0 at the begin, 1 at the end.
  [[nodiscard]] double place(double value) const { return (value - begin_) / (end_ - begin_); }
  /// Multiples of 1, 2 or 5 times a power of ten that lie on the axis.
  [[nodiscard]] std::vector<double> const& ticks() const { return ticks_; }
  /// With as many digits as tell ticks apart, and k, M or G for thousands, millions and milliards.
  [[nodiscard]] std::string label(double tick) const;

 private:
  double begin_, end_;
  double step_;
  std::vector<double> ticks_;
};

} // namespace orthant::cli
