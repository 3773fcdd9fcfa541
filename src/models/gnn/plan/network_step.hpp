#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What one rank does in an epoch of a GCN on the full graph, listed from the plan alone
// (pmm/cost/step_plan.hpp): no communicator, no array, no graph. The prediction of bytes and the bare products
// of `bench epoch` are sums over this list; a test holds it against the ledgers and the products of a real
// epoch on every grid.

#include "models/gnn/plan/epoch_traits.hpp"
#include "models/training/optimizer.hpp"

namespace orthant::models {

/// Lists forward pass, loss and backward pass, as GraphNetwork and RowLoss run them.
void plan_pass(pmm::StepPlan& step, NetworkPlan const& plan, NetworkSettings const& settings,
               NetworkEpochTraits const& traits);
/// Lists a pass and a run of ParameterUpdate.
void plan_epoch(pmm::StepPlan& step, NetworkPlan const& plan, NetworkSettings const& settings,
                NetworkEpochTraits const& traits, OptimizerSettings const& optimizer = {});

/// Lists forward pass and scores.
void plan_evaluation(pmm::StepPlan& step, NetworkPlan const& plan, NetworkSettings const& settings,
                     NetworkEpochTraits const& traits);

} // namespace orthant::models
