#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a figure shows, before it is drawn: panels below one another over the same x, and in each curves of one or
// several runs.

#include "cli/plot/axis.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace orthant::cli {

struct Point {
  double x = 0;
  double y = 0;
};

enum class Stroke : std::uint8_t { solid, dashed, dotted };

/// From low to high at x.
struct Spread {
  double x = 0;
  double low = 0;
  double high = 0;
};

/// The color says of which run it is, the stroke of what.
struct Curve {
  std::size_t run = 0; // of Figure::runs
  std::string split;   // "train", "validation", ..; empty: there is but one
  Stroke stroke = Stroke::solid;
  std::vector<Point> points; // finite, x does not fall
  std::vector<Spread> spreads{};
};

struct Panel {
  std::string title; // with the unit
  std::vector<Curve> curves;
  Scale y_scale = Scale::linear; // logarithmic: all y are above 0
  bool begins_at_zero = false;   // the axis of y, if it is linear
};

struct Figure {
  std::string x_title;
  std::vector<std::string> runs;
  std::vector<Panel> panels;
  Scale x_scale = Scale::linear;
  std::vector<double> x_ticks{}; // empty: as the range suggests
  std::string note{};            // below it
};

} // namespace orthant::cli
