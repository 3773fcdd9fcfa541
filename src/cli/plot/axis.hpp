#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The range of an axis, and the numbers that are written on it.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace orthant::cli {

/// Sums and differences of such numbers are finite.
inline constexpr double largest_plotted = 1e300;

/// From the least to the largest of `values`, whose magnitudes are at most largest_plotted; where these are equal but for rounding, a
/// little wider on both sides. From 0 to 1 if there are none.
[[nodiscard]] std::pair<double, double> range_of(std::vector<double> const& values);

enum class Scale : std::uint8_t { linear, logarithmic };

class Axis {
 public:
  /// `begin` is less than `end`, and above 0 if the scale is logarithmic. If linear, `least_ticks` numbers or one less, and at most 2.5
  /// times as many.
  Axis(double begin, double end, int least_ticks, Scale scale = Scale::linear);
  /// With these numbers.
  Axis(double begin, double end, std::vector<double> ticks, Scale scale);

  /// 0 at the begin, 1 at the end.
  [[nodiscard]] double place(double value) const;
  /// Multiples of 1, 2 or 5 times a power of ten that lie on the axis; of a logarithmic one 1, 2 and 5 times powers of ten, or the
  /// powers alone, unless these are fewer than three.
  [[nodiscard]] std::vector<double> const& ticks() const { return ticks_; }
  /// With as many digits as tell ticks apart, and k, M or G for thousands, millions and milliards.
  [[nodiscard]] std::string label(double tick) const;

 private:
  double begin_, end_;
  double step_ = 0; // of ticks that are equally far apart
  Scale scale_ = Scale::linear;
  std::vector<double> ticks_;
};

} // namespace orthant::cli
