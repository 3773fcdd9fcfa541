#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A figure as an SVG of its own: panels with axes below one another, a legend above. It follows the reader's choice of light or dark
// pages.

#include "cli/plot/figure.hpp"

#include <string>
#include <vector>

namespace orthant::cli {

/// The text of the file. Each curve is one `polyline`, with a circle per point if these are few.
[[nodiscard]] std::string to_svg(Figure const& figure);

/// At most about `2 num_columns` of the points: the lowest and the highest of each of `num_columns` equal parts of x, from
/// `begin` to `end`.
[[nodiscard]] std::vector<Point> thinned(std::vector<Point> const& points, double begin, double end,
                                         int num_columns);

} // namespace orthant::cli
