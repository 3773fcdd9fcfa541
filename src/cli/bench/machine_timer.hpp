#pragma once
// SPDX-License-Identifier: Apache-2.0

#include "runtime/arrays/views.hpp"
#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <functional>

namespace orthant::cli {

/// Times what bench machine measures, on all ranks at once. The ranks of an emulated machine take turns on a core, so
/// that a work finds nothing of its own in the caches when it begins: there a large array is passed over ahead of each repeat.
class MachineTimer {
 public:
  /// `repeat`: as of time_in_turn() (bench.hpp).
  MachineTimer(runtime::Communicator const& world, std::int64_t repeat);

  /// Median over repeats, of which each takes as long as its slowest rank. Collective.
  [[nodiscard]] double seconds_of(std::function<void()> work) const;

  /// Empties the caches if this is a rank of an emulated machine.
  void sweep_caches() const;
  [[nodiscard]] bool sweeps_caches() const { return swept_.extent(0) > 0; }
  [[nodiscard]] runtime::Communicator const& world() const { return world_; }

 private:
  runtime::Communicator const& world_;
  std::int64_t repeat_;
  runtime::Vector<float> swept_; // empty: caches stay as they are
};

} // namespace orthant::cli
