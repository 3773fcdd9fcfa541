#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Lists what one rank does in an epoch of a graph network on the full graph, from the plan alone (pmm/cost/step_plan.hpp): no
// communicator, array or graph is needed. The predicted bytes and the products of `bench epoch` are sums over this list. A test
// compares it with the ledgers and the products of a real epoch on every grid.

#include "models/gnn/plan/epoch_traits.hpp"
#include "models/training/optimizer.hpp"

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

} // namespace orthant::models
