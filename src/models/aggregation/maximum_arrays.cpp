// SPDX-License-Identifier: Apache-2.0
#include "models/aggregation/maximum_arrays.hpp"

#include "models/plan/gcn_products.hpp"

#include <algorithm>

namespace orthant::models {
namespace {

/// Between owners. Sizes do not depend on edges.
MaximumSteps steps_of(pmm::StepPlan const& step, NetworkLayerPlan const& layer, pmm::CellSizes const& cells) {
  return {step.shape(), step.coordinates(), maximum_plan_of(layer), cells, 0};
}

MaximumScratchPlan scratch_of(pmm::StepPlan const& step, NetworkLayerPlan const& layer,
                              pmm::CellSizes const& cells) {
  if (!layer.owners)
    return {.found = plane_maximum_of(step.shape(), step.coordinates(), layer, 0).num_results()};
  auto const s = steps_of(step, layer, cells);
  return {s.values_steps.has_copy() ? s.values_steps.num_in_block() : 0,
          s.result_steps.has_copy() ? s.result_steps.num_in_block() : 0, s.num_results()};
}

/// Of the whole graph.
pmm::CellSizes whole_cells_of(pmm::StepPlan const& step, NetworkLayerPlan const& layer) {
  return layer.owners ? cells_of(step, layer) : pmm::CellSizes{};
}

} // namespace

void MaximumScratchPlan::add(MaximumScratchPlan const& other) {
  values = std::max(values, other.values);
  result = std::max(result, other.result);
  found = std::max(found, other.found);
}

void MaximumScratchPlan::list(pmm::StepPlan& step) const {
  step.add_array("orthant::models::maximum_values", step.scalar_bytes(values));
  step.add_array("orthant::models::maximum_result", step.scalar_bytes(result));
  step.add_array("orthant::models::maximum_found", found * std::int64_t{sizeof(runtime::ValueIndex<double>)});
}

MaximumScratchPlan maximum_scratch_of(pmm::StepPlan const& step, NetworkPlan const& plan,
                                      pmm::CellSizes const& cells) {
  MaximumScratchPlan scratch;
  for (auto const& layer : plan.layers)
    if (layer.takes_maximum) scratch.add(scratch_of(step, layer, cells));
  return scratch;
}

void reserve_maximum(pmm::WorkspacePlan& work, pmm::StepPlan const& step, NetworkPlan const& plan) {
  for (auto const& layer : plan.layers) {
    if (!layer.takes_maximum || !layer.owners) continue;
    auto const s = steps_of(step, layer, cells_of(step, layer));
    for (auto const* const steps : {&s.values_steps, &s.result_steps})
      reserve_block_rows(work, *steps);
  }
}

void plan_maximum_arrays(pmm::StepPlan& step, NetworkPlan const& plan) {
  MaximumScratchPlan scratch;
  for (auto const& layer : plan.layers) {
    if (!layer.takes_maximum) continue;
    auto const of_layer = scratch_of(step, layer, whole_cells_of(step, layer));
    scratch.add(of_layer);
    step.add_array("orthant::models::maximum_places",
                   of_layer.found * std::int64_t{sizeof(runtime::LocalColumn)});
  }
  scratch.list(step);
}

} // namespace orthant::models
