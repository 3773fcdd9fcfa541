#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// An epoch of full-graph training played on a machine, message by message (pmm/simulate/simulated_step.hpp), on a grid that need not exist.

#include "graph/store/store_reader.hpp"
#include "models/gnn/plan/network_settings.hpp"
#include "models/training/optimizer.hpp"
#include "pmm/simulate/simulated_step.hpp"

namespace orthant::models {

/// An epoch after the first, in fp32. With a store, ranks have the non-zeros of their own blocks; else, if nothing tells them apart,
/// from `most_listed_ranks` on one list stands for all.
[[nodiscard]] pmm::SimulatedSeconds
simulate_epoch(pmm::GridShape const& shape, graph::StoreFacts const& facts, NetworkSettings const& settings,
               pmm::Machine const& machine, pmm::SimulationSettings simulation,
               graph::GraphStore const* store = nullptr, OptimizerSettings const& optimizer = {});
inline constexpr int most_listed_ranks = 4096;

} // namespace orthant::models
