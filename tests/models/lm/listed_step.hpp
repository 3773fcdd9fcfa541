#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A step of a transformer beside its list: what it communicates, multiplies, passes over and holds.

#include "models/lm/formula_batches.hpp"
#include "models/lm/training/language_model_cost.hpp"
#include "models/lm/transformer/transformer_parameters.hpp"
#include "models/plan/step_cases.hpp"
#include "runtime/numbers/counts.hpp"
#include "support/live_arrays.hpp"

namespace orthant::testing {

inline void plan_training_arrays(pmm::StepPlan& step, models::TransformerPlan const& plan,
                                 models::OptimizerSettings const& optimizer, std::int64_t num_accumulated) {
  auto const lengths = lengths_of(step, trained_of(parameters_of(step.shape(), step.coordinates(), plan)));
  plan_transformer_arrays(step, plan);
  plan_loss_arrays(step, plan.logits, pmm::LossKind::softmax);
  models::plan_update_arrays(step, optimizer, {lengths});
  models::plan_gradient_sum_array(step, {.num_of_all = runtime::sum_of(lengths)}, num_accumulated);
}

/// Two steps of `num_accumulated` passes, of which the second must do what is listed.
template<class T = double>
void expect_listed_step(pmm::ProcessGrid const& grid, LmCase const& the_case, std::int64_t num_accumulated,
                        models::GradientSumSettings const& sums = {}) {
  auto const plan = plan_transformer(grid.shape(), grid.coordinates(), the_case.settings,
                                     the_case.num_sequences, the_case.sequence, num_accumulated);
  auto list = step_of<T>(grid);
  models::OptimizerSettings optimizer;
  optimizer.kind = models::OptimizerKind::adamw;
  plan_language_model_step(list, plan, {.num_accumulated = num_accumulated}, optimizer, sums.bucket_bytes);
  plan_training_arrays(list, plan, optimizer, num_accumulated);

  LiveArrays const live;
  LmTrainerOf<T> trainer(grid, the_case, 2, num_accumulated, [&] {
    models::TrainSettings settings;
    settings.optimizer = optimizer;
    settings.gradient_sum = sums;
    return settings;
  }());
  if (pmm::runs_on_host) {
    EXPECT_EQ(live.by_label(), live.planned(list, {pmm::Lifetime::training, pmm::Lifetime::first_step}));
  }
  models::TrainProgress progress;
  trainer.trainer().train_epoch(progress, [](auto const&) { return true; }); // one step
  CountedWork const counted(grid);
  trainer.trainer().train_epoch(progress, {});

  EXPECT_EQ(counted_calls(grid), planned_calls(calls_of(list)));
  EXPECT_EQ(counted.passes(), passes_of(list));
  if (grid.world().size() <= 4) counted.expect_counted_kernels();
}

} // namespace orthant::testing
