#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// orthant plan --mode minibatch: predicted time, sent bytes and memory of an epoch of batches, on the best grids data x X x Y x Z.

#include "cli/plan/plan_options.hpp"
#include "cli/plan/planned_training.hpp"
#include "graph/store/store_reader.hpp"
#include "models/gnn/batches/network_batches.hpp"
#include "models/training/optimizer.hpp"
#include "pmm/cost/machine.hpp"

#include <string>
#include <vector>

namespace orthant::cli {

/// The training to plan: graph, network, optimizer, batches, schedules and number of ranks.
struct BatchPlanQuestion {
  graph::StoreFacts const& facts;
  graph::GraphStore const* store; // null: the graph is known by its counts only
  models::NetworkSettings settings;
  models::OptimizerSettings optimizer;
  models::MiniBatchSettings batches;
  std::vector<models::Schedule> schedules;
  int num_ranks = 1;
};

/// Returns the table, or one line of JSON per grid. If the user asks for a simulation, simulates an average step on the best grid of each
/// schedule. Throws UserError if no grid is left.
[[nodiscard]] std::string plan_batches(Context const& context, BatchPlanQuestion const& question,
                                       PlanOptions const& options, pmm::Machine const& machine,
                                       Simulation& simulation);

} // namespace orthant::cli
