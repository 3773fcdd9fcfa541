#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Options of `orthant plan`: a training as on its own command line, a graph given by its store or by its counts, and a number of ranks.

#include "cli/plan/planned_training.hpp"
#include "cli/training/train_options.hpp"
#include "graph/store/store_reader.hpp"
#include "models/gnn/batches/network_batches.hpp"
#include "models/training/optimizer.hpp"
#include "pmm/cost/machine.hpp"

#include <string>
#include <vector>

namespace orthant::cli {

struct PlanOptions : TrainOptions {
  std::int64_t vertices = 0;
  std::int64_t nonzeros = 0;
  std::string symmetric; // empty: yes
  std::optional<std::int64_t> ranks;
  std::string widths; // replaces --layers and --hidden
  bool exact = false;
  std::int64_t least_width = 16;
  std::int64_t top = 3;
  bool arrays = false;
  bool json = false;
  SimulationOptions simulation;
};

/// Declares all options of train and of plan. Options of train that change no plan are accepted and ignored.
void add_options(Command& command, PlanOptions& options);

/// Applies --preset and --widths to the options of the network, and makes the checks of train. Throws UserError if they fail.
void complete(Context& context, PlanOptions& options);

/// Settings of the network that train would build from these options, before a schedule is chosen.
[[nodiscard]] models::NetworkSettings settings_of(PlanOptions const& options);
/// Facts of a graph given by counts alone: dense features, one class per vertex. Throws UserError if a count is missing or invalid.
[[nodiscard]] graph::StoreFacts facts_of_counts(PlanOptions const& options);
/// Opens the graph of --graph or --dataset and sets the matrix that the network multiplies by; nullopt if counts are given. Collective.
/// Throws UserError if that fails.
[[nodiscard]] std::optional<graph::GraphStore> open_store(Context const& context, PlanOptions const& options,
                                                          models::NetworkSettings& settings);
/// Widths: features, outputs of the hidden layers, and classes or the width of embeddings. Throws UserError if --widths has others.
[[nodiscard]] std::vector<std::int64_t> widths_of(graph::StoreFacts const& facts, PlanOptions const& options,
                                                  models::NetworkSettings const& settings);
[[nodiscard]] std::vector<models::Schedule> schedules_of(PlanOptions const& options,
                                                         models::NetworkSettings const& settings);
/// Command line of the training on this grid, with the flags that were given: "orthant train --grid .. --schedule .. ".
[[nodiscard]] std::string train_command(Context const& context, PlanOptions const& options,
                                        models::Schedule schedule, pmm::GridShape const& shape);

// orthant plan --mode minibatch: predicted time, sent bytes and memory of an epoch of batches, on the best grids data x X x Y x Z.

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
