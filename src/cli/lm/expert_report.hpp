#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Loads of experts: what a run says of them, and how an earlier run's place the experts of this one.

#include "cli/options/command.hpp"
#include "models/lm/experts/expert_layer.hpp"
#include "models/lm/plan/transformer_settings.hpp"

#include <string>
#include <vector>

namespace orthant::cli {

/// How often each expert was chosen, before capacities dropped any, by layers with experts: in the last pass of each step whose metrics these
/// are. A file may hold several runs, which are added up. Rank 0 reads it. Collective. Throws UserError if the file cannot be read, is no
/// record of a run, or is one of a model with other layers of experts.
[[nodiscard]] std::vector<std::vector<std::int64_t>>
read_expert_loads(runtime::Communicator const& world, std::string const& path,
                  models::TransformerSettings const& model);

/// The load of the fullest rank over the mean, with experts in order and as placed, per layer: says it, and as a record of the metrics. Nothing
/// (null) if experts are in order.
void describe_placement(Context const& context, models::TransformerSettings const& model, int num_ranks);
[[nodiscard]] nlohmann::ordered_json record_of_placement(models::TransformerSettings const& model,
                                                         int num_ranks);

/// Whether there was a pass of training that they are the loads of.
[[nodiscard]] bool has_chosen(std::vector<models::ExpertLoad> const& loads);
/// The load of the experts in the last pass.
void describe_experts(Context const& context, std::vector<models::ExpertLoad> const& loads);

} // namespace orthant::cli
