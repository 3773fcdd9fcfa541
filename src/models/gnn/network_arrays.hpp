#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The memory of a network on one graph or batch, listed from its plan.

#include "models/gnn/gcn_input.hpp"
#include "models/gnn/gcn_layer.hpp"

#include <cstdint>
#include <optional>

namespace orthant::models {

/// What its layers use in turn.
[[nodiscard]] GcnScratchPlan scratch_of(pmm::StepPlan const& step, GcnPlan const& plan,
                                        GcnSettings const& settings);

/// Lists the arrays of a network, without its parameters and operands. `num_edges`: of this rank's block, if layers read them.
void plan_network_arrays(pmm::StepPlan& step, GcnPlan const& plan, GcnSettings const& settings,
                         std::optional<std::int64_t> num_feature_nonzeros, std::int64_t num_edges = 0);

} // namespace orthant::models
