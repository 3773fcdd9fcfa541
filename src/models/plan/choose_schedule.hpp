#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which schedule a network trains with, and on which grid, if the user leaves them open: those whose epoch takes least
// on a machine (pmm/cost/step_seconds.hpp), by the lists of all.

#include "models/plan/gcn_settings.hpp"
#include "pmm/cost/machine_file.hpp"
#include "pmm/cost/step_seconds.hpp"

namespace orthant::models {

/// `word`: "pmm3d", "rows" or "auto"; UserError for another. auto: pmm3d on one rank, where nothing is
/// communicated; else the schedule with the lower epoch_seconds(), the same on all ranks. Costs the list
/// of an epoch for each schedule: O(layers x ranks of an axis).
[[nodiscard]] Schedule choose_schedule(std::string_view word, graph::StoreFacts const& facts,
                                       GcnSettings const& settings, pmm::GridShape const& shape,
                                       pmm::Machine const& machine = pmm::assumed_machine());

/// How long an epoch after the first takes on the machine, in fp32 and the schedule of `settings`, on the rank with the most work.
[[nodiscard]] pmm::StepSeconds epoch_seconds(graph::StoreFacts const& facts, GcnSettings const& settings,
                                             pmm::GridShape const& shape, pmm::Machine const& machine);

/// `text` is a grid of that many ranks, or "auto", which takes the grid with `data` groups and the lowest epoch_seconds(). Each
/// grid uses the schedule that `schedule` names or chooses. If grids take equally long, the first of all_shapes() wins. Throws UserError for what is no grid.
[[nodiscard]] pmm::GridShape choose_grid(std::string_view text, int num_ranks, std::string_view schedule,
                                         graph::StoreFacts const& facts, GcnSettings const& settings,
                                         pmm::Machine const& machine = pmm::assumed_machine(), int data = 1);

} // namespace orthant::models
