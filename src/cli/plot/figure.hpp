#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a figure shows, before it is drawn: panels below one another over the same x, and in each curves of one or
// several runs.

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

/// The color says of which run it is, the stroke of what.
struct Curve {
  std::size_t run = 0; // of Figure::runs
  std::string split;   // "train", "validation", ..; empty: there is but one
  Stroke stroke = Stroke::solid;
  std::vector<Point> points; // finite, x does not fall
};

struct Panel {
  std::string title; // with the unit
  std::vector<Curve> curves;
};

struct Figure {
  std::string x_title;
  std::vector<std::string> runs;
  std::vector<Panel> panels;
};

} // namespace orthant::cli
