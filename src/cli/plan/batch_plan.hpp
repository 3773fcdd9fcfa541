#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// orthant plan --mode minibatch: how long an epoch of batches takes, and what it sends and holds, on the best grids data x X x Y x Z.

#include "cli/options/command.hpp"
#include "cli/plan/simulation.hpp"
#include "graph/store/store_reader.hpp"
#include "models/plan/gcn_settings.hpp"
#include "pmm/cost/machine.hpp"

#include <string>
#include <vector>

namespace orthant::cli {

/// Beside those of a plan for the full graph.
struct BatchPlanOptions {
  std::string mode = "full";
  std::int64_t batch = 0; // vertices; 0: not given
  std::int64_t accumulate = 1;
  std::string gather = "auto";
  std::int64_t eval_every = 10;
  bool exact = false;
  std::int64_t seed = 0;
};

void add_options(Command& command, BatchPlanOptions& options);

/// Throws UserError if batches are asked for without their size, or something of batches without batches.
void require_fitting(BatchPlanOptions const& options);

/// What is planned for.
struct BatchPlanQuestion {
  graph::StoreFacts const& facts;
  graph::GraphStore const* store; // null: counts alone
  models::GcnSettings settings;
  std::vector<models::Schedule> schedules;
  int num_ranks = 1;
  std::int64_t least_width = 1;
  std::size_t num_shown = 3; // grids of each schedule
  bool is_json = false;
  std::string flags_of_graph; // of the command to run: "--graph G.h5", and those of the model
};

/// The table, or a line of JSON per grid. Of the best grid of each schedule an average step is simulated, if that is asked for. Throws
/// UserError if no grid is left.
[[nodiscard]] std::string plan_batches(BatchPlanQuestion const& question, BatchPlanOptions const& options,
                                       pmm::Machine const& machine, Simulation& simulation);

} // namespace orthant::cli
