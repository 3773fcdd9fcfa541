#pragma once
// SPDX-License-Identifier: Apache-2.0

// What bench machine measures of the processor, on all ranks at once: the constants of what a step computes.
//
//   launches        small passes, one after the other
//   dense products  the three of a layer of 131,072 rows (more than caches hold) and 128 columns, as training calls
//                   them, less a pass over operands and results; the shares of narrow ones with 2 to 64 columns on one side;
//                   what each takes beside: small ones, 32 x 32 x 32
//   attention       forward and backward of 16 sequences of 128 tokens, 4 heads of 32 numbers
//   sparse products A^ B by the width n of B, of two blocks: all columns of a rank's rows, and an eighth of them,
//                   which has as many rows and an eighth of the non-zeros. Two equations for two constants:
//
//                     seconds - (rows + columns) n 4 / memory  =  non-zeros t(n) + rows r(n)
//
//   random numbers  how much longer a pass takes that drops half of what it moves
#include "graph/store/store_reader.hpp"
#include "pmm/cost/machine.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <functional>
#include <string_view>

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

/// Fills `machine` but for memory, which it needs, and the network. `report` is told what is measured next. Collective.
void measure_products(MachineTimer const& timer, graph::GraphStore const& store, pmm::Machine& machine,
                      std::function<void(std::string_view)> const& report);

} // namespace orthant::cli
