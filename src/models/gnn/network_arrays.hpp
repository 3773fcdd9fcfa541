#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The memory of a network on one graph or batch, listed from its plan.

#include "models/gnn/gcn_input.hpp"
#include "models/gnn/gcn_layer.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace orthant::models {

/// What its layers use in turn.
[[nodiscard]] GcnScratchPlan scratch_of(pmm::StepPlan const& step, GcnPlan const& plan,
                                        GcnSettings const& settings);

/// [layers] numbers in the memory of each layer for outputs of hidden layers, if they share it (plan/gcn_settings); else
/// empty.
[[nodiscard]] std::vector<std::int64_t> shared_output_lengths(pmm::StepPlan const& step, GcnPlan const& plan,
                                                              GcnSettings const& settings);

/// Lists the arrays of a network, without its parameters and operands. `num_edges`: of this rank's block, if layers read them.
void plan_network_arrays(pmm::StepPlan& step, GcnPlan const& plan, GcnSettings const& settings,
                         std::optional<std::int64_t> num_feature_nonzeros, std::int64_t num_edges = 0);

} // namespace orthant::models
