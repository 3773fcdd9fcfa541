#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Simulation of a step on a machine, message by message. Each rank runs its list of operations (cost/step_plan.hpp) at its own pace, and
// a call begins when the last member of its group has arrived. The simulation includes two effects that the sum of a list's seconds
// (cost/step_plan.hpp) leaves out: ranks wait for slower ones, and messages of different groups share the links of a node.
//
// One switch, whose capacity is unlimited, connects the nodes. Each node has one link per direction, with the bandwidth between nodes.
// Messages within a node have the measured bandwidth of such a group. Each round of messages begins with a delay of `step_seconds`. A
// call uses the algorithm that the run has chosen (Machine::collectives), or else the one with the least seconds_alone(). Operations never overlap: they run one after
// the other as in the list.

#include "pmm/cost/collective_rounds.hpp"
#include "pmm/cost/machine.hpp"
#include "pmm/cost/step_plan.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <string_view>

namespace orthant::pmm {

/// Time interval in which a rank computed or took part in a call.
struct SimulatedStretch {
  int rank = 0;
  std::string_view name; // "compute", or the name of the collective
  std::string_view axis; // empty for "compute"
  double begin = 0;
  double end = 0;
  std::int64_t bytes = 0;
};

struct SimulationSettings {
  std::map<int, double> stragglers; // rank: factor by which its computing takes longer
  /// If true, the list of rank 0, which has the most work, is used for all ranks.
  bool folds_ranks = false;
  /// Called for every stretch of every rank. The stretch of a call begins when its rank arrives, so it includes waiting.
  std::function<void(SimulatedStretch const&)> watch;
};

struct SimulatedSeconds {
  double total = 0; // until the last rank has finished
  // Means over ranks:
  double computing = 0;
  double waiting = 0; // for other members of a group
  double calls = 0;   // from the arrival of the last member to the end of a call
};

/// Simulates one step of all ranks. `list_of` returns the list of the rank at these coordinates. The members of each call's group must
/// be at equal distances: groups along one axis, or over x, y and z together.
[[nodiscard]] SimulatedSeconds simulate_step(GridShape const& shape,
                                             std::function<StepPlan(Coordinates const&)> const& list_of,
                                             Machine const& machine, SimulationSettings const& settings = {});

} // namespace orthant::pmm
