// SPDX-License-Identifier: Apache-2.0
#include "models/aggregation/maximum_arrays.hpp"

#include "models/plan/gcn_products.hpp"

#include <algorithm>
#include <vector>

namespace orthant::models {
namespace {

std::vector<MaximumSteps> steps_of(pmm::StepPlan const& step, GcnPlan const& plan,
                                   pmm::CellSizes const& cells, std::int64_t num_edges) {
  std::vector<MaximumSteps> all;
  for (auto const& layer : plan.layers)
    if (layer.takes_maximum)
      all.emplace_back(step.shape(), step.coordinates(), maximum_plan_of(layer), cells, num_edges);
  return all;
}

/// The same of the whole graph.
std::vector<MaximumSteps> steps_of(pmm::StepPlan const& step, GcnPlan const& plan, std::int64_t num_edges) {
  if (!plan.layers.front().takes_maximum) return {};
  return steps_of(step, plan, cells_of(step, plan.layers.front()), num_edges);
}

} // namespace

void MaximumScratchPlan::add(MaximumSteps const& s) {
  values = std::max(values, s.values_steps.has_copy() ? s.values_steps.num_in_block() : 0);
  result = std::max(result, s.result_steps.has_copy() ? s.result_steps.num_in_block() : 0);
  found = std::max(found, s.num_results());
}

void MaximumScratchPlan::list(pmm::StepPlan& step) const {
  step.add_array("orthant::models::maximum_values", step.scalar_bytes(values));
  step.add_array("orthant::models::maximum_result", step.scalar_bytes(result));
  step.add_array("orthant::models::maximum_found", found * std::int64_t{sizeof(runtime::ValueIndex<double>)});
}

MaximumScratchPlan maximum_scratch_of(pmm::StepPlan const& step, GcnPlan const& plan,
                                      pmm::CellSizes const& cells, std::int64_t num_edges) {
  MaximumScratchPlan scratch;
  for (auto const& steps : steps_of(step, plan, cells, num_edges))
    scratch.add(steps);
  return scratch;
}

void reserve_maximum(pmm::WorkspacePlan& work, pmm::StepPlan const& step, GcnPlan const& plan) {
  for (auto const& s : steps_of(step, plan, 0))
    for (auto const* const steps : {&s.values_steps, &s.result_steps})
      reserve_block_rows(work, *steps);
}

void plan_maximum_arrays(pmm::StepPlan& step, GcnPlan const& plan, std::int64_t num_edges) {
  MaximumScratchPlan scratch;
  for (auto const& steps : steps_of(step, plan, num_edges)) {
    scratch.add(steps);
    step.add_array("orthant::models::maximum_places",
                   steps.num_results() * std::int64_t{sizeof(runtime::LocalColumn)});
  }
  scratch.list(step);
}

} // namespace orthant::models
