#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// On which grid and with which schedule a network trains, if the user leaves them open: those whose epoch takes least
// on a machine (pmm/cost/step_plan.hpp), by the lists of all.

#include "models/gnn/plan/network_settings.hpp"
#include "pmm/cost/machine_file.hpp"
#include "pmm/cost/step_plan.hpp"

#include <functional>
#include <vector>

namespace orthant::models {

/// How long an epoch takes on the rank with the most work. Infinitely long on a grid that cannot train.
using EpochSeconds = std::function<pmm::StepSeconds(pmm::GridShape const&, Schedule)>;

/// Of full-graph training: an epoch after the first, in fp32. Graph, settings and machine are copied. Costs the
/// list of an epoch: O(layers x ranks of an axis).
[[nodiscard]] EpochSeconds full_graph_seconds(graph::StoreFacts const& facts, NetworkSettings const& settings,
                                              pmm::Machine const& machine = pmm::assumed_machine());

/// What is open.
struct GridQuestion {
  int num_ranks = 1;
  std::string_view grid = "auto";     // or DxXxYxZ
  std::string_view schedule = "auto"; // or "pmm3d", "rows"
};

struct GridChoice {
  pmm::GridShape shape;
  Schedule schedule{};
  double seconds = 0; // of an epoch; 0 if nothing was open
};

/// All choices that the question leaves, the fastest first: grids of one data group, with each schedule. Equally fast ones are in the order of all_shapes(), and pmm3d
/// before rows. The same on all ranks. Throws UserError for what is no grid of that many ranks, and for an unknown schedule.
[[nodiscard]] std::vector<GridChoice> rank_grids(GridQuestion const& question, EpochSeconds const& seconds);

/// The first of them.
[[nodiscard]] GridChoice choose_grid(GridQuestion const& question, EpochSeconds const& seconds);

/// What --schedule WORD leaves open to that network: "rows" in place of "auto" if it has no other.
[[nodiscard]] std::string_view open_schedules(NetworkSettings const& settings, std::string_view word);

} // namespace orthant::models
