#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Operations of residuals (gnn/layers/residual.hpp) and of jumping knowledge (gnn/layers/jump.hpp) in the plan of a step.

#include "models/gnn/plan/epoch_traits.hpp"
#include "models/gnn/plan/network_plan.hpp"
#include "models/gnn/plan/network_products.hpp"
#include "pmm/cost/step_plan.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace orthant::models {

/// Lists the operations of a residual before the layer's products, before its backward pass, and after it. `num_nonzeros`: of a sparse F.
/// No-ops for layers without a residual. The sum F' = D + R V is listed with the activation.
void plan_residual_start(pmm::StepPlan& step, NetworkLayerPlan const& layer, NetworkEpochTraits const& traits,
                         NumberFormats const& formats, std::optional<std::int64_t> num_nonzeros);
void plan_residual_start_backward(pmm::StepPlan& step, NetworkLayerPlan const& layer,
                                  NetworkEpochTraits const& traits, runtime::Wire format);
void plan_residual_finish_backward(pmm::StepPlan& step, NetworkLayerPlan const& layer,
                                   NumberFormats const& formats, std::optional<std::int64_t> num_nonzeros,
                                   bool needs_input_gradient);

/// Lists the operations of jumping knowledge after layer l, before the head, after it, after its backward pass, and before the backward pass of layer l.
void plan_jump_take(pmm::StepPlan& step, NetworkPlan const& plan, NetworkEpochTraits const& traits,
                    std::size_t l);
void plan_jump_join_last(pmm::StepPlan& step, NetworkPlan const& plan);
void plan_jump_logits(pmm::StepPlan& step, NetworkPlan const& plan);
void plan_jump_start_backward(pmm::StepPlan& step, NetworkPlan const& plan);
void plan_jump_add_gradient(pmm::StepPlan& step, NetworkPlan const& plan, NetworkEpochTraits const& traits,
                            std::size_t l);

} // namespace orthant::models
