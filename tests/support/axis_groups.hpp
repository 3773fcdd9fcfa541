#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The four axis groups of a grid, made by Communicator::split alone. Rank order: Y fastest, then X, Z, data.

#include "runtime/comm/communicator.hpp"

#include <array>
#include <vector>

namespace orthant::testing {

/// One group of an axis, and a number that only its ranks share.
struct AxisGroup {
  runtime::Communicator comm;
  int identity = 0;
};

/// shape: (data, X, Y, Z), its product the size of `world`. The groups come in that order. Collective.
inline std::vector<AxisGroup> axis_groups(runtime::Communicator const& world,
                                          std::array<int, 4> const& shape) {
  constexpr std::array names{"data", "X", "Y", "Z"};
  constexpr std::array slowest_to_fastest{0, 3, 1, 2};
  std::vector<AxisGroup> groups;
  for (int axis = 0; axis < 4; ++axis) {
    int stride = 1;
    for (auto it = slowest_to_fastest.rbegin(); *it != axis; ++it)
      stride *= shape[static_cast<std::size_t>(*it)];
    auto const coordinate = world.rank() / stride % shape[static_cast<std::size_t>(axis)];
    auto const color = world.rank() - coordinate * stride; // the rank at the group's coordinate 0
    groups.push_back({world.split(color, coordinate, names[static_cast<std::size_t>(axis)]), color});
  }
  return groups;
}

} // namespace orthant::testing
