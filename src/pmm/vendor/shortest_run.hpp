#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// How long a product takes on a device, for a choice between two ways at set-up.

#include "runtime/arrays/views.hpp"

#include <algorithm>
#include <chrono>

namespace orthant::pmm::detail {

/// The shortest of three runs, after one that does not count. `run` enqueues on exec. Waits.
template<class Run>
std::chrono::steady_clock::duration shortest_run(runtime::DefaultExec const& exec, Run const& run) {
  using Clock = std::chrono::steady_clock;
  constexpr int num_runs = 3;
  run();
  auto best = Clock::duration::max();
  for (int i = 0; i < num_runs; ++i) {
    runtime::compat::fence(exec, "orthant::pmm::shortest_run/before it is timed");
    auto const start = Clock::now();
    run();
    runtime::compat::fence(exec, "orthant::pmm::shortest_run/timed");
    best = std::min(best, Clock::now() - start);
  }
  return best;
}

} // namespace orthant::pmm::detail
