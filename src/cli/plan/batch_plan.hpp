#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// orthant plan --mode minibatch: how long an epoch of batches takes, and what it sends and holds, on the best grids data x X x Y x Z.

#include "cli/plan/plan_options.hpp"
#include "cli/plan/planned_training.hpp"
#include "graph/store/store_reader.hpp"
#include "models/gnn/batches/network_batches.hpp"
#include "models/training/optimizer.hpp"
#include "pmm/cost/machine.hpp"

#include <string>
#include <vector>

namespace orthant::cli {

/// What is planned for.
struct BatchPlanQuestion {
  graph::StoreFacts const& facts;
  graph::GraphStore const* store; // null: counts alone
  models::NetworkSettings settings;
  models::OptimizerSettings optimizer;
  models::MiniBatchSettings batches;
  std::vector<models::Schedule> schedules;
  int num_ranks = 1;
};

/// The table, or a line of JSON per grid. Of the best grid of each schedule an average step is simulated, if that is asked for. Throws
/// UserError if no grid is left.
[[nodiscard]] std::string plan_batches(Context const& context, BatchPlanQuestion const& question,
                                       PlanOptions const& options, pmm::Machine const& machine,
                                       Simulation& simulation);

} // namespace orthant::cli
