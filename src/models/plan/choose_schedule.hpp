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
/// communicated; else the one of the fewer epoch_seconds(), the same on all ranks. Costs the list
/// of an epoch for each schedule: O(layers x ranks of an axis).
[[nodiscard]] Schedule choose_schedule(std::string_view word, graph::StoreFacts const& facts,
                                       GcnSettings const& settings, pmm::GridShape const& shape,
                                       pmm::Machine const& machine = pmm::assumed_machine());

/// Of an epoch after the first in the schedule of `settings`, fp32, for the rank that has most.
[[nodiscard]] pmm::StepSeconds epoch_seconds(graph::StoreFacts const& facts, GcnSettings const& settings,
                                             pmm::GridShape const& shape, pmm::Machine const& machine);

/// `text`: a grid of that many ranks, or "auto": with `data` groups, that of the fewest epoch_seconds() in the schedule
/// that `schedule` says or chooses; of equals the first of all_shapes(). Throws UserError for what is no grid.
[[nodiscard]] pmm::GridShape choose_grid(std::string_view text, int num_ranks, std::string_view schedule,
                                         graph::StoreFacts const& facts, GcnSettings const& settings,
                                         pmm::Machine const& machine = pmm::assumed_machine(), int data = 1);

} // namespace orthant::models
