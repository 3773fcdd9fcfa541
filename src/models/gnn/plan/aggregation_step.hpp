#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Operations of a layer around its products with A^: powers of A^ (gnn/aggregation/power_aggregation.cpp runs them), and rows of the
// vertex itself, scaled by a trained factor (gnn/aggregation/aggregation.hpp). The list of a step holds them.

#include "models/gnn/plan/epoch_traits.hpp"
#include "models/gnn/plan/network_plan.hpp"
#include "pmm/cost/step_plan.hpp"

#include <functional>

namespace orthant::models {

/// List the forward and the backward pass. `multiply` lists one product with A^, or with its adjoint.
void plan_powers(pmm::StepPlan& step, NetworkLayerPlan const& layer, std::function<void()> const& multiply);
void plan_powers_backward(pmm::StepPlan& step, NetworkLayerPlan const& layer,
                          std::function<void()> const& multiply);

/// Lists the selection of the rows of `input` that `output` keeps, or the spread of their gradients.
void plan_select_rows(pmm::StepPlan& step, pmm::Placement const& input, pmm::Placement const& output,
                      bool is_backward, runtime::Wire format = runtime::Wire::native);
/// Lists the move of rows of the vertex itself to where the aggregate lies, or back.
void plan_move_self(pmm::StepPlan& step, NetworkLayerPlan const& layer, NetworkEpochTraits const& traits,
                    bool is_backward, runtime::Wire format = runtime::Wire::native);

/// List the moves before the products if the layer has a self scale, and the sum after them.
void plan_bring_scaled(pmm::StepPlan& step, NetworkLayerPlan const& layer, NetworkEpochTraits const& traits);
void plan_bring_scaled_back(pmm::StepPlan& step, NetworkLayerPlan const& layer,
                            NetworkEpochTraits const& traits);
void plan_add_scaled(pmm::StepPlan& step, pmm::Placement const& sum);

} // namespace orthant::models
