#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// How long a local product A^ B takes, by the width of B. Every non-zero of A^ is loaded once per product, and memory
// delivers whole cache lines; so a column of a narrow B costs more than a column of a wide one:
//
//   seconds = non-zeros  t(width)          t: per non-zero, from a table (machine.hpp)

#include <cstdint>
#include <vector>

namespace orthant::pmm {

struct SpmmTimes {
  struct Point {
    std::int64_t width = 0;
    double seconds = 0; // per non-zero
  };
  std::vector<Point> points; // at least one, by increasing width

  /// Seconds of one product. Between two widths of the table the time grows linearly; a product that is narrower than the table
  /// costs what its narrowest one does, a wider one as much per column as its widest.
  [[nodiscard]] double seconds(std::int64_t num_nonzeros, std::int64_t width) const;
};

} // namespace orthant::pmm
