// SPDX-License-Identifier: Apache-2.0
#include "pmm/cost/spmm_times.hpp"

#include <algorithm>
#include <iterator>

namespace orthant::pmm {

double SpmmTimes::seconds(std::int64_t num_nonzeros, std::int64_t width) const {
  auto const nonzeros = static_cast<double>(num_nonzeros);
  auto const above = std::ranges::lower_bound(points, width, {}, &Point::width);
  auto const ratio = [](std::int64_t a, std::int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  };
  if (above == points.end()) return nonzeros * points.back().seconds * ratio(width, points.back().width);
  if (above == points.begin()) return nonzeros * above->seconds;
  auto const& below = *std::prev(above);
  return nonzeros * (below.seconds + ratio(width - below.width, above->width - below.width) *
                                         (above->seconds - below.seconds));
}

} // namespace orthant::pmm
