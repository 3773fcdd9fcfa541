// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/plan/aggregation_step.hpp"

#include "models/gnn/plan/network_step.hpp"
#include "pmm/aggregate/row_lists.hpp"
#include "pmm/matrix/relayout.hpp"
#include "pmm/rows/bias.hpp"

namespace orthant::models {
namespace {

/// A pass that reads `num_read` matrices as large as the output and writes one.
void plan_block(pmm::StepPlan& step, NetworkLayerPlan const& layer, char const* name, std::int64_t num_read) {
  auto const bytes = step.scalar_bytes(step.block(layer.output).num_stored);
  step.add_pass({name, num_read * bytes, bytes});
}

} // namespace

void plan_powers(pmm::StepPlan& step, NetworkLayerPlan const& layer, std::function<void()> const& multiply) {
  plan_block(step, layer, "pick_block", 1);
  for (std::int64_t k = layer.num_powers; k-- > 0;) {
    multiply();
    plan_block(step, layer, "add_block", 2);
  }
}

void plan_powers_backward(pmm::StepPlan& step, NetworkLayerPlan const& layer,
                          std::function<void()> const& multiply) {
  plan_block(step, layer, "put_block", 1);
  for (std::int64_t k = 0; k < layer.num_powers; ++k) {
    multiply();
    plan_block(step, layer, "put_block", 1);
  }
}

void plan_select_rows(pmm::StepPlan& step, pmm::Placement const& input, pmm::Placement const& output,
                      bool is_backward, runtime::Wire format) {
  auto const num_kept = step.block(output).rows.size();
  if (is_backward)
    pmm::plan_add_rows(step, step.block(input).rows.size(), num_kept, input.extents.columns, format);
  else
    pmm::plan_pick_rows(step, num_kept, input.extents.columns, format);
}

void plan_move_self(pmm::StepPlan& step, NetworkLayerPlan const& layer, NetworkEpochTraits const& traits,
                    bool is_backward, runtime::Wire format) {
  if (keeps_rows(layer)) return;
  if (layer.owners) return plan_select_rows(step, layer.aggregated(), layer.aggregate(), is_backward, format);
  plan_relayout(step, traits.self_sizes(layer, is_backward), format);
}

void plan_bring_scaled(pmm::StepPlan& step, NetworkLayerPlan const& layer, NetworkEpochTraits const& traits) {
  if (!layer.has_self_scale) return;
  if (keeps_rows(layer) && keeps_brought(layer)) pmm::plan_copy(step, layer.aggregate());
  plan_move_self(step, layer, traits, false);
}

void plan_bring_scaled_back(pmm::StepPlan& step, NetworkLayerPlan const& layer,
                            NetworkEpochTraits const& traits) {
  if (!layer.has_self_scale) return;
  auto const& gradient = layer.aggregate();
  auto const bytes = step.scalar_bytes(step.block(gradient).num_stored);
  step.add_pass({"dot_numbers", 2 * bytes, step.scalar_bytes(1)});
  if (!layer.owners)
    for (auto const axes : {gradient.layout.rows, gradient.layout.columns})
      step.add_call(runtime::Operation::all_reduce, axes, step.scalar_bytes(1));
  plan_move_self(step, layer, traits, true);
}

void plan_add_scaled(pmm::StepPlan& step, pmm::Placement const& sum) {
  auto const bytes = step.scalar_bytes(step.block(sum).num_stored);
  step.add_pass({"add_scaled", 2 * bytes, bytes});
}

} // namespace orthant::models
