#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which schedule a network trains with if the user leaves it open: the one whose calls and bytes cost less, by
// the lists of both.

#include "models/plan/gcn_settings.hpp"

namespace orthant::models {

/// `word`: "pmm3d", "rows" or "auto"; UserError for another. auto: pmm3d on one rank, where nothing is
/// communicated; else the one with the lower communication_seconds(), the same on all ranks. Costs the list
/// of an epoch for each schedule: O(layers x ranks of an axis).
[[nodiscard]] Schedule choose_schedule(std::string_view word, graph::StoreFacts const& facts,
                                       GcnSettings const& settings, pmm::GridShape const& shape);

/// What the calls of an epoch cost a rank, in seconds, if a call takes 50 us and 10 GB/s are sent: a first
/// estimate, of the rank with the largest parts, that is good for comparing schedules alone.
[[nodiscard]] double communication_seconds(graph::StoreFacts const& facts, GcnSettings const& settings,
                                           pmm::GridShape const& shape);

} // namespace orthant::models
