#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A step played on a machine, message by message: all ranks go through their lists (cost/step_plan.hpp), each at its own
// pace, and calls begin when the last member of their group has come. What the sum of a list's seconds (cost/step_plan.hpp) cannot
// tell: ranks that wait for slower ones, and messages of different groups that meet on the links of a node.
//
// Nodes hang on one switch that is never full, by a link in each direction with the bandwidth between nodes. Links within a node carry the measured
// bandwidth of such a group. Each round of messages waits `step_seconds` first. Of the algorithms that may carry a call out,
// it takes the fastest by seconds_alone(). Nothing overlaps: operations follow one another as in the list.

#include "pmm/cost/machine.hpp"
#include "pmm/cost/step_plan.hpp"
#include "pmm/simulate/collective_rounds.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string_view>

namespace orthant::pmm {

/// Seconds of a call by that algorithm while all groups of its kind make the same call, in a job of `job_ranks` ranks:
/// per round `step_seconds`, and its bytes by the slowest link, whose bandwidth the messages on it share. In addition `call_seconds`.
[[nodiscard]] double seconds_alone(Machine const& machine, PlannedCall const& call, Algorithm algorithm,
                                   int job_ranks);
/// The one with the least seconds_alone().
[[nodiscard]] Algorithm fastest_algorithm(Machine const& machine, PlannedCall const& call, int job_ranks);

/// What a rank did for a while: "compute", or the name of an operation, on its axis.
struct SimulatedStretch {
  int rank = 0;
  std::string_view name;
  std::string_view axis; // empty: it computes
  double begin = 0;
  double end = 0;
  std::int64_t bytes = 0;
};

struct SimulationSettings {
  std::map<int, double> stragglers;   // rank: how many times as long its computing takes
  std::optional<Algorithm> algorithm; // of all calls that it may carry out; else the fastest
  /// One list stands for all ranks: that of the first, which has most.
  bool folds_ranks = false;
  /// Gets every stretch of every rank. Calls begin for it when this rank has come.
  std::function<void(SimulatedStretch const&)> watch;
};

struct SimulatedSeconds {
  double total = 0; // until the last rank is done
  // Means over ranks:
  double computing = 0;
  double waiting = 0; // for other members of a group
  double calls = 0;   // from there to the end of a call
};

/// `list_of`: the list of the rank at these coordinates. Calls must be along axes, or the group over all of them: members at equal distances.
[[nodiscard]] SimulatedSeconds simulate_step(GridShape const& shape,
                                             std::function<StepPlan(Coordinates const&)> const& list_of,
                                             Machine const& machine, SimulationSettings const& settings = {});

} // namespace orthant::pmm
