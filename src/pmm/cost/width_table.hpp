#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A measured constant by the number of columns of an operand.

#include <cstdint>
#include <vector>

namespace orthant::pmm {

struct WidthTable {
  struct Point {
    std::int64_t width = 0;
    double value = 0;
  };
  std::vector<Point> points; // by increasing width

  /// Linear between two widths. Below the narrowest it is what it is there: memory delivers whole cache lines. Above the widest it
  /// grows as the width does. 0 if there is no point.
  [[nodiscard]] double at(std::int64_t width) const;
};

} // namespace orthant::pmm
