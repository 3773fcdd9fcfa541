#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What one rank does in a step of mini-batch training, listed before it runs (pmm/cost/step_plan.hpp): the
// lists of rows that move between owners, the passes of its group's batches, the sums over the data axis, and
// the update. How many of a batch's vertices and non-zeros are in this rank's blocks is known once the batch
// is sampled.

#include "models/plan/gcn_step.hpp"

#include <vector>

namespace orthant::models {

/// A batch as its operands say: plan with this rank's own rows, non-zeros and residuals.
struct PlannedBatch {
  NetworkPlan plan;
  NetworkEpochTraits traits;
};

/// Lists a step on these batches of one group, one after the other, as Trainer runs it.
void plan_batch_step(pmm::StepPlan& step, std::vector<PlannedBatch> const& batches,
                     NetworkSettings const& settings, OptimizerSettings const& optimizer = {});

} // namespace orthant::models
