// SPDX-License-Identifier: Apache-2.0
#include "cli/plot/axis.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>

namespace orthant::cli {
namespace {

/// The largest of 1, 2, 5 times a power of ten that is at most `step`.
double round_down(double step) {
  auto const power = std::pow(10, std::floor(std::log10(step)));
  for (auto const factor : {5, 2})
    if (factor * power <= step * (1 + 1e-9)) return factor * power;
  return power;
}

/// 1, 2 and 5 times powers of ten between them, or if these are too many the powers alone.
std::vector<double> logarithmic_ticks(double begin, double end, int most) {
  std::vector<double> ticks, powers;
  auto const first = static_cast<int>(std::floor(std::log10(begin)));
  auto const last = static_cast<int>(std::ceil(std::log10(end)));
  for (auto exponent = first; exponent <= last; ++exponent)
    for (auto const factor : {1, 2, 5}) {
      auto const tick = factor * std::pow(10.0, exponent);
      if (tick < begin * (1 - 1e-9) || tick > end * (1 + 1e-9)) continue;
      ticks.push_back(tick);
      if (factor == 1) powers.push_back(tick);
    }
  return std::ssize(ticks) > most && powers.size() >= 2 ? powers : ticks;
}

/// With these, linear ones lie 14 pixels apart in a panel of 200, however long the axis is.
constexpr auto least_of_logarithmic = 3;

struct Unit {
  double size;
  char const* suffix;
};
constexpr std::array units{Unit{1e9, "G"}, Unit{1e6, "M"}, Unit{1e3, "k"}};

} // namespace

std::pair<double, double> range_of(std::vector<double> const& values) {
  if (values.empty()) return {0, 1};
  auto const [least, largest] = std::ranges::minmax(values);
  auto const magnitude = std::max(std::abs(least), std::abs(largest));
  if (largest - least > 1e-9 * magnitude) return {least, largest};
  auto const margin = magnitude == 0 ? 1 : magnitude / 10;
  return {least - margin, largest + margin};
}

Axis::Axis(double begin, double end, int least_ticks, Scale scale) : begin_(begin), end_(end), scale_(scale) {
  if (scale == Scale::logarithmic) {
    ticks_ = logarithmic_ticks(begin, end, 2 * least_ticks);
    if (std::ssize(ticks_) >= least_of_logarithmic) return;
    ticks_.clear(); // it is so short that it is nearly linear
    least_ticks = least_of_logarithmic;
  }
  step_ = round_down((end - begin) / least_ticks);
  auto const slack = 1e-9 * (end - begin);
  for (auto i = std::ceil((begin - slack) / step_); i * step_ <= end + slack; ++i)
    ticks_.push_back(i == 0 ? 0 : i * step_);
}

Axis::Axis(double begin, double end, std::vector<double> ticks, Scale scale)
    : begin_(begin),
      end_(end),
      step_(ticks.size() > 1 ? ticks[1] - ticks[0] : 1),
      scale_(scale),
      ticks_(std::move(ticks)) {}

double Axis::place(double value) const {
  if (scale_ == Scale::linear) return (value - begin_) / (end_ - begin_);
  return std::log(value / begin_) / std::log(end_ / begin_);
}

std::string Axis::label(double tick) const {
  if (scale_ == Scale::logarithmic) return fmt::format("{:.4g}", tick);
  auto const largest = std::max(std::abs(begin_), std::abs(end_));
  auto const unit = std::ranges::find_if(units, [&](Unit const& each) { return largest >= 10 * each.size; });
  auto const size = unit == units.end() ? 1 : unit->size;
  auto const num_decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(step_ / size) - 1e-9)));
  if (num_decimals > 6 || largest > 1e13) return fmt::format("{:.3g}", tick);
  return fmt::format("{:.{}f}{}", tick / size, num_decimals,
                     unit == units.end() || tick == 0 ? "" : unit->suffix);
}

} // namespace orthant::cli
