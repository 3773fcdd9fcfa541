#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which schedule a network trains with if the user leaves it open: the one whose calls, bytes and sparse
// products cost less, by the lists of both.

#include "models/plan/gcn_settings.hpp"
#include "models/plan/spmm_times.hpp"

namespace orthant::models {

/// `word`: "pmm3d", "rows" or "auto"; UserError for another. auto: pmm3d on one rank, where nothing is
/// communicated; else the one whose epoch has the lower step_seconds(), the same on all ranks. Costs the list
/// of an epoch for each schedule: O(layers x ranks of an axis).
[[nodiscard]] Schedule choose_schedule(std::string_view word, graph::StoreFacts const& facts,
                                       GcnSettings const& settings, pmm::GridShape const& shape,
                                       SpmmTimes const& times = built_in_spmm_times());

/// step_seconds() of an epoch in the schedule of `settings`, of the rank that has most.
[[nodiscard]] double epoch_seconds(graph::StoreFacts const& facts, GcnSettings const& settings,
                                   pmm::GridShape const& shape, SpmmTimes const& times);

/// What the calls and the sparse products of a list cost its rank, in seconds, if a call takes 50 us and 10 GB/s
/// are sent: a first estimate that is good for comparing schedules and grids alone.
[[nodiscard]] double step_seconds(pmm::StepPlan const& step, SpmmTimes const& times);

} // namespace orthant::models
