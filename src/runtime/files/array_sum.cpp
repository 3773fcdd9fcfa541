// SPDX-License-Identifier: Apache-2.0
#include "runtime/files/array_sum.hpp"

#include "runtime/comm/collectives.hpp"

namespace orthant::runtime {

void add_up(Communicator const& comm, std::vector<std::uint64_t>& sums) {
  std::vector<std::int64_t> halves; // 32-bit halves, whose sums do not overflow
  for (auto const sum : sums) {
    halves.push_back(static_cast<std::int64_t>(sum >> 32));
    halves.push_back(static_cast<std::int64_t>(sum & 0xffffffffU));
  }
  all_reduce(host, comm, halves);
  for (std::size_t i = 0; i < sums.size(); ++i)
    sums[i] =
        (static_cast<std::uint64_t>(halves[2 * i]) << 32) + static_cast<std::uint64_t>(halves[2 * i + 1]);
}

} // namespace orthant::runtime
