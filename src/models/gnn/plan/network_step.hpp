#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Lists what one rank does in an epoch of a graph network on the full graph, from the plan alone (pmm/cost/step_plan.hpp): no
// communicator, array or graph is needed. The predicted bytes and the products of `bench epoch` are sums over this list. A test
// compares it with the ledgers and the products of a real epoch on every grid.

#include "models/gnn/plan/epoch_traits.hpp"
#include "models/gnn/plan/network_plan.hpp"
#include "models/gnn/plan/network_products.hpp"
#include "models/training/optimizer.hpp"
#include "pmm/cost/step_plan.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

namespace orthant::models {

/// Lists the forward pass, the loss and the backward pass, as GraphNetwork and RowLoss run them.
void plan_pass(pmm::StepPlan& step, NetworkPlan const& plan, NetworkSettings const& settings,
               NetworkEpochTraits const& traits);
/// Lists a pass and a run of ParameterUpdate.
void plan_epoch(pmm::StepPlan& step, NetworkPlan const& plan, NetworkSettings const& settings,
                NetworkEpochTraits const& traits, OptimizerSettings const& optimizer = {});

/// Lists a forward pass and the scores.
void plan_evaluation(pmm::StepPlan& step, NetworkPlan const& plan, NetworkSettings const& settings,
                     NetworkEpochTraits const& traits);

// Operations of a layer around its products with A^: powers of A^ (gnn/aggregation/power_aggregation.cpp runs them), and rows of the
// vertex itself, scaled by a trained factor (gnn/aggregation/aggregation.hpp). The list of a step holds them.

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

// Operations of residuals (gnn/layers/residual.hpp) and of jumping knowledge (gnn/layers/jump.hpp) in the plan of a step.

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
