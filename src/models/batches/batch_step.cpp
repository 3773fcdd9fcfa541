// SPDX-License-Identifier: Apache-2.0
#include "models/batches/batch_step.hpp"

#include "models/batches/batch_plan.hpp"
#include "models/batches/needed_batch.hpp"
#include "models/plan/gcn_parameters.hpp"
#include "models/training/gradient_sum.hpp"
#include "models/training/parameter_update.hpp"

namespace orthant::models {

void plan_batch_step(pmm::StepPlan& step, std::vector<PlannedBatch> const& batches,
                     NetworkSettings const& settings, OptimizerSettings const& optimizer) {
  ORTHANT_REQUIRE(!batches.empty(), "a step without a batch");
  auto const parameters = parameters_of(batches.front().plan, settings);
  auto const lengths = lengths_of(step, parameters);
  auto const num_accumulated = std::ssize(batches);
  for (std::int64_t k = 0; k < num_accumulated; ++k) {
    auto const& [plan, traits] = batches[static_cast<std::size_t>(k)];
    auto of_batch = traits;
    of_batch.counts_rows = true;
    if (auto const& owners = plan.layers.front().owners;
        owners && gather_of(plan, settings.gather) != pmm::Gather::all)
      plan_needed_lists(step, owners->roles, traits.needed);
    plan_pass(step, plan, settings, of_batch);
    plan_add_gradients(step, lengths, k, num_accumulated);
  }
  constexpr std::int64_t loss_and_count = 2;
  step.add_call(runtime::Operation::all_reduce, pmm::Axis::data,
                loss_and_count * std::int64_t{sizeof(double)});
  plan_gradient_sum(step, lengths, num_accumulated);
  auto const [trained, statistics] = updated_lengths_of(step, parameters);
  plan_update(step, optimizer, trained, normed_lengths_of(step, parameters), statistics);
}

} // namespace orthant::models
