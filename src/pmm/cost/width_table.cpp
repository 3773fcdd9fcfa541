// SPDX-License-Identifier: Apache-2.0
#include "pmm/cost/width_table.hpp"

#include <algorithm>
#include <iterator>

namespace orthant::pmm {

double WidthTable::at(std::int64_t width) const {
  if (points.empty()) return 0;
  auto const above = std::ranges::lower_bound(points, width, {}, &Point::width);
  auto const ratio = [](std::int64_t a, std::int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  };
  if (above == points.end()) return points.back().value * ratio(width, points.back().width);
  if (above == points.begin()) return above->value;
  auto const& below = *std::prev(above);
  return below.value + ratio(width - below.width, above->width - below.width) * (above->value - below.value);
}

} // namespace orthant::pmm
