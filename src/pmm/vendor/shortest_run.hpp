#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Timing of a product on a device, for a choice between two implementations at set-up.

#include "runtime/arrays/views.hpp"

#include <algorithm>
#include <chrono>

namespace orthant::pmm::detail {

/// Returns the shortest time of three runs, after one warm-up run. `run` must enqueue on exec. Fences exec.
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
