#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What orthant plan is asked for: a graph, by its store or by its counts, a network, and a number of ranks.

#include "cli/options/training_options.hpp"
#include "cli/plan/batch_plan.hpp"
#include "cli/plan/simulation.hpp"

namespace orthant::cli {

constexpr double default_dropout = 0.5;

struct PlanOptions : BatchPlanOptions, GraphModelOptions {
  std::string graph;
  std::int64_t vertices = 0;
  std::int64_t nonzeros = 0;
  std::string symmetric; // empty: yes
  std::int64_t ranks = 1;
  std::string widths;
  std::string normalize = "auto";
  std::string self_loops = "auto";
  std::string norm = "none";
  bool residual = false;
  double dropout = default_dropout;
  double edge_dropout = 0;
  bool trainable_features = false;
  std::string schedule = "all";
  std::string comm_dtype = "fp32";
  std::string operand_dtype = "fp32";
  std::int64_t least_width = 16;
  std::int64_t top = 3;
  bool arrays = false;
  bool json = false;
  std::string machine;
  SimulationOptions simulation;
};

/// A graph of which no more is known: dense features, one class per vertex. Throws UserError.
[[nodiscard]] graph::StoreFacts facts_of_counts(PlanOptions const& options);
/// With the operator that the model multiplies by. Collective. Throws UserError.
[[nodiscard]] graph::GraphStore open_store(runtime::Communicator const& world, PlanOptions const& options);
/// Of the default network on that graph, or as the user says. Throws UserError.
[[nodiscard]] std::vector<std::int64_t> widths_of(graph::StoreFacts const& facts, PlanOptions const& options);
[[nodiscard]] models::GcnSettings settings_of(std::vector<std::int64_t> const& widths,
                                              PlanOptions const& options);
/// The graph, and the flags of train that differ from its defaults.
[[nodiscard]] std::string flags_of_graph(PlanOptions const& options, models::GcnSettings const& settings);
[[nodiscard]] std::vector<models::Schedule> schedules_of(PlanOptions const& options);

} // namespace orthant::cli
