#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which of many costs fit into the memory of a rank.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace orthant::pmm {

struct LeftOut {
  std::int64_t num_costs = 0;
  std::int64_t least_bytes = 0; // of all costs
};

/// Takes the costs with more than `limit` bytes out of the list, which has at least one; 0: there is no limit. `bytes_of`: member
/// or function that says how many bytes a rank holds at most.
template<class Cost, class BytesOf>
LeftOut leave_out_what_does_not_fit(std::vector<Cost>& costs, double limit, BytesOf const& bytes_of) {
  LeftOut left_out{0, std::invoke(bytes_of, std::ranges::min(costs, {}, bytes_of))};
  if (limit > 0)
    left_out.num_costs = static_cast<std::int64_t>(std::erase_if(
        costs, [&](Cost const& cost) { return static_cast<double>(std::invoke(bytes_of, cost)) > limit; }));
  return left_out;
}

} // namespace orthant::pmm
