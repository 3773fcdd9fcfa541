#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Measurements of `bench machine` on the processor, on all ranks at once: the constants of local work in a step.
//
//   launches        small passes, one after the other
//   dense products  the three products of a layer of 131,072 rows (larger than caches) and 128 columns, as training calls
//                   them, without a pass over operands and results; the relative speed of narrow products with 2 to 64
//                   columns on one side; the overhead per product, from products of 32 x 32 x 32
//   attention       forward and backward of 16 sequences of 128 tokens, 4 heads of 32 numbers
//   sparse products A^ B by the width n of B, for two blocks: all columns of a rank's rows, and the first eighth of the
//                   columns, with as many rows and about an eighth of the non-zeros. Two equations for two constants:
//
//                     seconds - (rows + columns) n 4 / memory  =  non-zeros t(n) + rows r(n)
//
//   random numbers  additional time of a pass that drops half of its numbers

#include "graph/store/store_reader.hpp"
#include "pmm/cost/machine.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <functional>
#include <string_view>

namespace orthant::cli {

/// Times work on all ranks at once. On an emulated machine the ranks take turns on a core, so their own data are not in the caches when a
/// repeat begins; the timer reproduces that by writing a large array before each repeat.
class MachineTimer {
 public:
  /// `repeat`: as in time_in_turn() (bench/bench.hpp).
  MachineTimer(runtime::Communicator const& world, std::int64_t repeat);

  /// Median over the repeats of the seconds of the slowest rank. Collective.
  [[nodiscard]] double seconds_of(std::function<void()> work) const;

  /// Replaces the contents of the caches if this is a rank of an emulated machine; otherwise does nothing.
  void sweep_caches() const;
  [[nodiscard]] bool sweeps_caches() const { return swept_.extent(0) > 0; }
  [[nodiscard]] runtime::Communicator const& world() const { return world_; }

 private:
  runtime::Communicator const& world_;
  std::int64_t repeat_;
  runtime::Vector<float> swept_; // empty: caches stay as they are
};

/// Sets all constants of `machine` except memory, which must be set before, and the network. Calls `report` with the name of the next
/// measurement. Collective.
void measure_products(MachineTimer const& timer, graph::GraphStore const& store, pmm::Machine& machine,
                      std::function<void(std::string_view)> const& report);

} // namespace orthant::cli
