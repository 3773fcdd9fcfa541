// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/plan/network_step.hpp"

#include "models/gnn/plan/network_products.hpp"
#include "models/layers/joined_numbers.hpp"
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

namespace {

void plan_sum(pmm::StepPlan& step, pmm::Placement const& sum) {
  auto const bytes = step.scalar_bytes(step.block(sum).num_stored);
  step.add_pass({"add", 2 * bytes, bytes});
}

/// Moves the result of layer k of the jump to the placement that the head needs, or its gradient back.
void plan_move(pmm::StepPlan& step, NetworkPlan const& plan, NetworkEpochTraits const& traits, std::size_t k,
               bool is_backward) {
  auto const& source = plan.jump_source(k);
  auto const& target = plan.jump_target();
  if (source == target) return;
  if (plan.layers.front().owners) return plan_select_rows(step, source, target, is_backward);
  plan_relayout(step, traits.jump_sizes(plan, k, is_backward));
}

void plan_join(pmm::StepPlan& step, NetworkPlan const& plan, std::size_t number) {
  auto const& target = plan.jump_target();
  if (plan.jump->kind == JumpKind::max) return plan_join_maximum(step, number, target);
  if (number == 0) return pmm::plan_copy(step, target);
  plan_sum(step, target);
}

} // namespace

void plan_residual_start(pmm::StepPlan& step, NetworkLayerPlan const& layer, NetworkEpochTraits const& traits,
                         NumberFormats const& formats, std::optional<std::int64_t> num_nonzeros) {
  if (!layer.is_residual) return;
  if (layer.residual_map)
    plan_product(step, residual_products_of(*layer.residual_map, formats).product, num_nonzeros);
  if (keeps_residual(layer)) return;
  if (layer.owners)
    return plan_select_rows(step, layer.residual_source(), layer.result(), false, formats.operand);
  plan_relayout(step, traits.residual_sizes(layer, false), formats.operand);
}

void plan_residual_start_backward(pmm::StepPlan& step, NetworkLayerPlan const& layer,
                                  NetworkEpochTraits const& traits, runtime::Wire format) {
  if (!layer.is_residual || has_residual_in_place(layer)) return;
  if (!keeps_residual(layer)) {
    if (!layer.owners) return plan_relayout(step, traits.residual_sizes(layer, true), format);
    return plan_select_rows(step, layer.residual_source(), layer.result(), true, format);
  }
  auto const bytes = step.wire_bytes(step.block(layer.result()).num_padded, format);
  step.add_pass({"copy", bytes, bytes});
}

void plan_residual_finish_backward(pmm::StepPlan& step, NetworkLayerPlan const& layer,
                                   NumberFormats const& formats, std::optional<std::int64_t> num_nonzeros,
                                   bool needs_input_gradient) {
  if (!layer.is_residual) return;
  if (layer.residual_map) {
    auto const products = residual_products_of(*layer.residual_map, formats);
    plan_product(step, products.weight_back, num_nonzeros);
    if (needs_input_gradient) plan_product(step, products.input_back);
    return;
  }
  auto const bytes = step.wire_bytes(step.block(layer.input).num_stored, formats.operand);
  step.add_pass({"add", 2 * bytes, bytes});
}

void plan_jump_take(pmm::StepPlan& step, NetworkPlan const& plan, NetworkEpochTraits const& traits,
                    std::size_t l) {
  auto const k = plan.jump ? plan.jump->number_of(l) : std::nullopt;
  if (!k) return;
  if (!plan.jump->maps.empty()) plan_product(step, residual_products_of(plan.jump->maps[*k], {}).product);
  plan_move(step, plan, traits, *k, false);
  plan_join(step, plan, *k);
}

void plan_jump_join_last(pmm::StepPlan& step, NetworkPlan const& plan) {
  if (!plan.jump || plan.jump->kind == JumpKind::cat) return;
  plan_join(step, plan, plan.jump->layers.size());
  if (plan.jump->kind == JumpKind::mean) plan_scale_numbers(step, plan.jump_target());
}

void plan_jump_logits(pmm::StepPlan& step, NetworkPlan const& plan) {
  if (plan.jump && !plan.jump->maps.empty()) plan_sum(step, plan.jump_target());
}

void plan_jump_start_backward(pmm::StepPlan& step, NetworkPlan const& plan) {
  if (!plan.jump) return;
  auto const& target = plan.jump_target();
  if (plan.jump->kind == JumpKind::max) return plan_share_of_maximum(step, target);
  if (plan.jump->kind == JumpKind::mean) plan_scale_numbers(step, target);
  pmm::plan_copy(step, target);
}

void plan_jump_add_gradient(pmm::StepPlan& step, NetworkPlan const& plan, NetworkEpochTraits const& traits,
                            std::size_t l) {
  auto const k = plan.jump ? plan.jump->number_of(l) : std::nullopt;
  if (!k) return;
  if (plan.jump->kind == JumpKind::max) plan_share_of_maximum(step, plan.jump_target());
  plan_move(step, plan, traits, *k, true);
  if (plan.jump->maps.empty()) return plan_sum(step, plan.layers[l].result());
  auto const products = residual_products_of(plan.jump->maps[*k], {});
  plan_product(step, products.weight_back);
  plan_product(step, products.input_back);
}

} // namespace orthant::models
