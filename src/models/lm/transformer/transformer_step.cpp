// SPDX-License-Identifier: Apache-2.0
//
// Planned operations of a pass, and the arrays of a Transformer.
#include "models/lm/pipeline/stage_messages.hpp"
#include "models/lm/transformer/attention_half.hpp"
#include "models/lm/transformer/feed_forward_half.hpp"
#include "models/lm/transformer/token_embedding.hpp"
#include "models/lm/transformer/transformer.hpp"
#include "pmm/pairs/pair_layers.hpp"
#include "pmm/token_rows/feed_forward.hpp"

namespace orthant::models {

using pmm::Calls, pmm::Form;

namespace {

enum class BlockPass : std::uint8_t { evaluated, trained, computed_again };

/// Adds the forward pass of a block to `step`. A block that is computed again omits the last product of its segment. `calls`:
/// whether the collectives are made, made and kept, or replayed. It does not apply to the last product of a segment, whose
/// collectives are always made.
void plan_block(pmm::StepPlan& step, TransformerPlan const& plan, std::int64_t layer, BlockPass pass,
                Calls calls) {
  auto const& settings = plan.settings;
  auto const is_training = pass != BlockPass::evaluated;
  auto const drops = is_training && settings.dropout > 0;
  auto const rows = step.block(plan.stream).rows.size();
  auto const columns = step.block(plan.stream).columns.size();
  auto const is_last = ends_segment(plan, layer);
  step.begin_layer(layer + 1);
  step.set_calls(calls);
  plan_attention_half(step, plan, drops);
  plan_add_dropped(step, rows, columns, drops);
  plan_compute_feed_forward(step, plan, layer, is_training);
  if (is_last) step.set_calls(Calls::made);
  if (!is_last || pass != BlockPass::computed_again) {
    plan_combine_feed_forward(step, plan, layer);
    plan_add_dropped(step, rows, columns, drops);
  }
  step.set_calls(Calls::made);
}

/// Adds the arrays of the tapes of all blocks to `step`. The tapes keep the results of the collectives of blocks that are
/// computed again.
void plan_kept_results(pmm::StepPlan& step, TransformerPlan const& plan) {
  if (!plan.settings.keeps_collectives) return;
  pmm::StepPlan again(step.shape(), step.coordinates(), step.scalar_bytes(1));
  for (auto l = plan.stage.layers.begin; l < plan.stage.layers.end; ++l)
    if (is_computed_again(plan, l)) plan_block(again, plan, l, BlockPass::computed_again, Calls::replayed);
  for (auto const& pass : passes_of(again))
    if (pass.name == runtime::pass_of_replayed(0).name)
      step.add_array("orthant::runtime::CallTape/result", pass.bytes_written);
}

} // namespace

HeadProducts head_products(TransformerPlan const& plan) {
  auto const whole = whole_table(plan.table);
  pmm::ProductOptions back; // the sums of logits stay exact: the loss takes their exponentials
  back.result_wire = plan.settings.wire;
  return {{"logits = X E^T", Form::left_grad, plan.stream, whole, plan.logits, {}},
          {"dX = dlogits E", Form::product, plan.logits, whole, plan.stream, back},
          {"dE = dlogits^T X", Form::right_grad, plan.logits, plan.stream, table_addends(plan.table), {}}};
}

void plan_transformer_forward(pmm::StepPlan& step, TransformerPlan const& plan, bool is_training) {
  auto const drops = is_training && plan.settings.dropout > 0;
  auto const rows = step.block(plan.stream).rows.size();
  auto const columns = step.block(plan.stream).columns.size();
  auto const& stage = plan.stage;
  plan_receive_input(step, plan);
  plan_merge_adapters(step, plan);
  if (stage.has_embedding()) {
    plan_gather_table(step, plan.table);
    plan_embedding(step, plan);
    if (drops) plan_drop_rows(step, rows, columns, true);
  }
  auto const& settings = plan.settings;
  for (auto l = stage.layers.begin; l < stage.layers.end; ++l) {
    auto const keeps = is_training && settings.keeps_collectives && is_computed_again(plan, l);
    plan_block(step, plan, l, is_training ? BlockPass::trained : BlockPass::evaluated,
               keeps ? Calls::kept : Calls::made);
  }
  plan_send_output(step, plan);
  if (!stage.has_head()) return;
  step.begin_layer(settings.num_layers + 1);
  plan_norm(step, plan);
  if (!settings.tied_head || !stage.has_embedding()) plan_gather_table(step, plan.table);
  plan_product(step, head_products(plan).product);
}

namespace {

std::int64_t num_small(pmm::StepPlan const& step, TransformerPlan const& plan) {
  return num_small_gradients(step.shape(), step.coordinates(),
                             parameters_of(step.shape(), step.coordinates(), plan));
}
std::int64_t length_of_table(pmm::StepPlan const& step, TransformerPlan const& plan) {
  return step.block(plan.table).num_padded;
}
void plan_small_gradients(pmm::StepPlan& step, TransformerPlan const& plan) {
  auto const small = num_small(step, plan);
  if (small > 0) step.add_call(runtime::Operation::all_reduce, pmm::Axis::z, step.scalar_bytes(small));
}

} // namespace

void plan_transformer_backward(pmm::StepPlan& step, TransformerPlan const& plan, std::int64_t k) {
  auto const drops = plan.settings.dropout > 0;
  auto const rows = step.block(plan.stream).rows.size();
  auto const columns = step.block(plan.stream).columns.size();
  auto const drop = [&] {
    if (drops) plan_drop_rows(step, rows, columns, true);
  };
  auto const& stage = plan.stage;
  step.begin_layer(plan.settings.num_layers + 1);
  plan_receive_gradient(step, plan);
  if (stage.has_head()) {
    auto const head = head_products(plan);
    plan_product(step, head.input_back);
    plan_product(step, head.weight_back);
    if (!plan.adds_to_head_gradient()) plan_reduce_table(step, plan.table);
    plan_norm_backward(step, plan, pmm::Residual::none);
  }
  for (auto const& segment : segments(plan)) {
    for (auto l = segment.begin; l < segment.end && is_computed_again(plan, l); ++l)
      plan_block(step, plan, l, BlockPass::computed_again,
                 plan.settings.keeps_collectives ? Calls::replayed : Calls::made);
    for (auto l = segment.end; l-- > segment.begin;) {
      step.begin_layer(l + 1);
      drop();
      plan_feed_forward_half_backward(step, plan, l);
      drop();
      plan_attention_half_backward(step, plan, drops);
    }
  }
  plan_send_gradient(step, plan);
  step.begin_layer(0);
  if (stage.has_embedding()) {
    drop();
    plan_embedding_backward(step, plan);
    plan_reduce_table(step, plan.table);
  }
  if (!stage.splits_backward) {
    plan_small_gradients(step, plan);
    plan_project_adapters(step, plan);
    return;
  }
  plan_kept_gradient(step, num_small(step, plan));
  if (!stage.has_head()) return;
  if (k == 0)
    plan_kept_gradient(step, length_of_table(step, plan));
  else
    pmm::plan_add_numbers(step, length_of_table(step, plan));
}

void plan_transformer_weight_backward(pmm::StepPlan& step, TransformerPlan const& plan, std::int64_t k,
                                      std::int64_t num_passes) {
  auto const& stage = plan.stage;
  plan_kept_gradient(step, num_small(step, plan));
  if (stage.has_head()) {
    auto const bytes = step.scalar_bytes(length_of_table(step, plan));
    step.add_pass({"keep_gradient", k + 1 == num_passes ? bytes : 0, bytes});
  }
  for (auto l = stage.layers.end; l-- > stage.layers.begin;) {
    step.begin_layer(l + 1);
    plan_feed_forward_half_weights(step, plan);
    plan_attention_half_weights(step, plan, plan.settings.dropout > 0);
  }
  step.begin_layer(0);
  plan_small_gradients(step, plan);
}

namespace {

/// Adds the arrays of a PassInFlight without its document positions to `step`.
void plan_pass_arrays(pmm::StepPlan& step, TransformerPlan const& plan) {
  auto const length = layers_per_segment(plan);
  plan_embedding_arrays(step, plan);
  for (std::int64_t place = 0; place < length; ++place)
    plan_block_memory(step, plan, place);
  // Streams that are not kept: one per layer of a segment.
  for (auto l = plan.stage.layers.begin; l < plan.stage.layers.end; ++l)
    if (keeps_output(plan, l) || l < plan.stage.layers.begin + length)
      plan_matrix(step, plan.stream, "orthant::models::stream");
  plan_kept_results(step, plan);
  if (plan.stage.splits_backward)
    step.add_array("orthant::models::PassInFlight/small_gradients", step.scalar_bytes(num_small(step, plan)));
}

} // namespace

void plan_transformer_arrays(pmm::StepPlan& step, TransformerPlan const& plan) {
  auto const& settings = plan.settings;
  auto const& stage = plan.stage;
  plan_parameter_arrays(step, parameters_of(step.shape(), step.coordinates(), plan));
  plan_scratch_arrays(step, plan);
  std::vector<std::int64_t> with_experts;
  for (auto l = stage.layers.begin; l < stage.layers.end; ++l)
    if (settings.experts.has_layer(l)) with_experts.push_back(l);
  plan_expert_scratch(step, plan.experts, with_experts);
  plan_stage_messages_arrays(step, plan);
  if (plan.has_table()) plan_table_arrays(step, plan.table);
  if (stage.has_head()) {
    plan_norm_arrays(step, plan);
    plan_matrix(step, plan.stream, "orthant::models::final_normed");
    plan_matrix(step, plan.logits, "orthant::models::logits");
    if (!settings.tied_head) plan_table_arrays(step, plan.table);
    if (stage.splits_backward)
      step.add_array("orthant::models::TransformerHead/table_sum",
                     step.scalar_bytes(length_of_table(step, plan)));
  }
  if (settings.positions == Positions::rotary)
    pmm::plan_rotary_table(step, plan.whole_sequence(), settings.head_dim());
  for (std::int64_t i = 0; i < stage.num_in_flight; ++i) {
    plan_pass_arrays(step, plan);
    if (i > 0) plan_document_positions(step, plan); // those of the first pass are among the scratch arrays
  }
  LinearWorkPlan work;
  if (stage.has_head()) {
    auto const head = head_products(plan);
    plan_buffers(work[0], step, head.product);
    plan_buffers(work[0], step, head.input_back);
    plan_buffers(work[0], step, head.weight_back);
  }
  plan_attention_half_buffers(work, step, plan);
  plan_feed_forward_half_buffers(work, step, plan);
  reserve_norm_sums(work[0], step.block(plan.stream));
  for (auto const& buffers : work)
    buffers.list(step);
}

} // namespace orthant::models
