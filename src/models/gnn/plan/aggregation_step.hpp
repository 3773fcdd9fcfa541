#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Operations of a layer around its products with A^: powers of A^ (gnn/layers/power_aggregation.hpp runs them), and rows of the
// vertex itself, scaled by a trained factor (gnn/layers/aggregation.hpp). The list of a step holds them.

#include "models/gnn/plan/epoch_traits.hpp"
#include "models/gnn/plan/network_plan.hpp"
#include "pmm/cost/step_plan.hpp"

#include <functional>

namespace orthant::models {

/// List the forward and the backward pass. `multiply` lists one product with A^, or with its adjoint.
void plan_powers(pmm::StepPlan& step, NetworkLayerPlan const& layer, std::function<void()> const& multiply);
void plan_powers_backward(pmm::StepPlan& step, NetworkLayerPlan const& layer,
                          std::function<void()> const& multiply);

/// List the moves before the products if the layer has a self scale, and the sum after them.
void plan_bring_scaled(pmm::StepPlan& step, NetworkLayerPlan const& layer, NetworkEpochTraits const& traits);
void plan_bring_scaled_back(pmm::StepPlan& step, NetworkLayerPlan const& layer,
                            NetworkEpochTraits const& traits);
void plan_add_scaled(pmm::StepPlan& step, pmm::Placement const& sum);

} // namespace orthant::models
