// SPDX-License-Identifier: Apache-2.0
#include "runtime/machine/allowed_cores.hpp"

#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <sched.h>
#include <span>

namespace orthant::runtime {

std::vector<int> allowed_cores() {
  // A mask of the default size holds 1,024 cores; the kernel refuses it on larger machines.
  for (int num_cores = 1024; num_cores <= 1 << 20; num_cores *= 2) {
    auto* const mask = CPU_ALLOC(static_cast<std::size_t>(num_cores));
    if (mask == nullptr) break;
    auto const size = CPU_ALLOC_SIZE(static_cast<std::size_t>(num_cores));
    std::vector<int> cores;
    auto const has_mask = sched_getaffinity(0, size, mask) == 0;
    for (int core = 0; has_mask && core < num_cores; ++core)
      if (CPU_ISSET_S(static_cast<std::size_t>(core), size, mask)) cores.push_back(core);
    CPU_FREE(mask);
    if (has_mask) return cores;
  }
  return {};
}

std::int64_t num_cores_of(Communicator const& node) {
  auto const own = allowed_cores();
  std::vector<std::int64_t> is_allowed(static_cast<std::size_t>(
      all_reduced(node, own.empty() ? std::int64_t{0} : std::int64_t{own.back()} + 1, Reduction::max)));
  for (auto const core : own)
    is_allowed[static_cast<std::size_t>(core)] = 1;
  all_reduce(host, node, std::span(is_allowed), Reduction::max);
  return std::ranges::count(is_allowed, 1);
}

bool is_oversubscribed(Communicator const& comm) {
  auto const node = comm.split_by_node();
  auto const num_cores = num_cores_of(node);
  auto const is_here = num_cores > 0 && node.size() > num_cores;
  return all_reduced(comm, is_here ? 1 : 0, Reduction::max) == 1;
}

} // namespace orthant::runtime
