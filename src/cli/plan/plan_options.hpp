#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What orthant plan is asked for: a training, as its own command line has it, of a graph by its store or by its counts, on a number
// of ranks.

#include "cli/plan/planned_training.hpp"
#include "cli/training/train_options.hpp"
#include "graph/store/store_reader.hpp"

namespace orthant::cli {

struct PlanOptions : TrainOptions {
  std::int64_t vertices = 0;
  std::int64_t nonzeros = 0;
  std::string symmetric; // empty: yes
  std::optional<std::int64_t> ranks;
  std::string widths; // in place of --layers and --hidden
  bool exact = false;
  std::int64_t least_width = 16;
  std::int64_t top = 3;
  bool arrays = false;
  bool json = false;
  SimulationOptions simulation;
};

/// All of train, of which it passes over what changes no plan, and its own.
void add_options(Command& command, PlanOptions& options);

/// Takes --preset and --widths into the options of the network, and makes the checks of train. Throws UserError.
void complete(Context& context, PlanOptions& options);

/// The network that train would make of these options, whose schedule is open.
[[nodiscard]] models::NetworkSettings settings_of(PlanOptions const& options);
/// A graph of which no more is known: dense features, one class per vertex. Throws UserError.
[[nodiscard]] graph::StoreFacts facts_of_counts(PlanOptions const& options);
/// The graph of --graph or --dataset with the operator that the network multiplies by; none if counts are given. Collective. Throws
/// UserError.
[[nodiscard]] std::optional<graph::GraphStore> open_store(Context const& context, PlanOptions const& options,
                                                          models::NetworkSettings& settings);
/// Features, outputs of the hidden layers, and classes or the width of embeddings. Throws UserError if --widths has others.
[[nodiscard]] std::vector<std::int64_t> widths_of(graph::StoreFacts const& facts, PlanOptions const& options,
                                                  models::NetworkSettings const& settings);
[[nodiscard]] std::vector<models::Schedule> schedules_of(PlanOptions const& options,
                                                         models::NetworkSettings const& settings);
/// "orthant train --grid .. --schedule .. " and the flags that were given, on so many ranks.
[[nodiscard]] std::string train_command(Context const& context, PlanOptions const& options,
                                        models::Schedule schedule, pmm::GridShape const& shape);

} // namespace orthant::cli
