#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What mini-batch training would cost on every grid data x X x Y x Z of a number of ranks, none of which need exist: sums over the
// list of a step (batch_step.hpp) on the average batch of uniform sampling.

#include "models/batches/batch_plan.hpp"
#include "models/gnn/grid_cost.hpp"
#include "models/gnn/memory_estimate.hpp"

#include <optional>

namespace orthant::models {

/// Of one grid. All bytes are per rank, and those of the rank that has most.
struct BatchCost {
  Schedule schedule{};
  pmm::GridShape shape;
  std::int64_t num_steps = 0;    // of an epoch
  std::int64_t num_vertices = 0; // of an average batch
  std::int64_t sent_bytes = 0;   // in an epoch of batches, without evaluation
  std::int64_t num_calls = 0;    // collectives of that epoch
  std::int64_t array_bytes = 0;  // the most that is held at once
  pmm::StepSeconds seconds{};    // of that epoch on a machine; making batches is not counted
};

/// Batches of an epoch in which each of `num_groups` data groups takes as many: a multiple of groups x
/// num_accumulated. None if some groups have no work, or if there are not as many vertices.
[[nodiscard]] std::optional<std::int64_t> num_batches_of(std::int64_t num_vertices, BatchSizes const& batches,
                                                         int num_groups);

/// Steps of such an epoch on a grid that can_train_batches(); else 1.
[[nodiscard]] std::int64_t num_steps_of(std::int64_t num_vertices, BatchSizes const& batches, int num_groups);

/// Whether batches of that many vertices can be trained on such a grid.
[[nodiscard]] bool can_train_batches(pmm::GridShape const& shape, std::int64_t num_vertices,
                                     BatchSizes const& batches);

/// Lists an average step of the rank at `coordinates`. The grid can_train_batches().
[[nodiscard]] pmm::StepPlan list_of_batches(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                            graph::StoreFacts const& facts, NetworkPlan const& plan,
                                            NetworkSettings const& settings, BatchSizes const& batches,
                                            OptimizerSettings const& optimizer = {});

/// The costs of all grids that can_train_batches(), with any number of data groups, and that has_wide_parts() takes, for the
/// schedule of `settings`, in order of seconds. fp32.
[[nodiscard]] std::vector<BatchCost> costs_of_batches(int num_ranks, graph::StoreFacts const& facts,
                                                      NetworkSettings const& settings,
                                                      BatchSizes const& batches, std::int64_t least_width,
                                                      pmm::Machine const& machine,
                                                      OptimizerSettings const& optimizer = {});

/// How long an epoch of batches takes (choose_schedule.hpp). Everything is copied.
[[nodiscard]] EpochSeconds mini_batch_seconds(graph::StoreFacts const& facts, NetworkSettings const& settings,
                                              BatchSizes const& batches, pmm::Machine const& machine);

} // namespace orthant::models
