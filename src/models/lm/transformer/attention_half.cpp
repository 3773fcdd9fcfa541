// SPDX-License-Identifier: Apache-2.0
#include "models/lm/transformer/attention_half.hpp"

#include "models/lm/transformer/shared_key_values.hpp"
#include "pmm/attention/attention.hpp"

namespace orthant::models {
namespace {

using pmm::Turn, runtime::DefaultExec, runtime::Range, runtime::Vector;

/// Number of adjacent columns of a group to rotate: its queries and, if this rank has them, its keys.
std::int64_t turned_columns(TransformerPlan const& plan, pmm::Block const& qkv) {
  auto const shape = shape_of_group(plan);
  return shape.query_columns() + (holds_key_values(plan, qkv) ? shape.key_columns() : 0);
}

template<class T>
Vector<T> part(Vector<T> const& numbers, std::int64_t i, std::int64_t count) {
  return Vector<T>(numbers.data() + i * count, static_cast<std::size_t>(count));
}

/// Adds the attention of all groups to `step`.
void plan_attend(pmm::StepPlan& step, TransformerPlan const& plan, bool drops) {
  auto const groups = attended_groups(step.block(plan.qkv.output), plan);
  for (auto g = groups.begin; g < groups.end; ++g) {
    if (g == groups.begin) plan_start_gather(step, plan);
    plan_finish_gather(step, plan);
    if (g + 1 < groups.end) plan_start_gather(step, plan);
    plan_attention_forward(step, shape_of_group(plan), drops);
  }
  if (plan.exchanges_heads()) pmm::plan_to_part(step, step.block(plan.projection.input).num_stored);
}

/// Adds the rotation of all groups to `step`.
void plan_turn(pmm::StepPlan& step, TransformerPlan const& plan) {
  if (plan.settings.positions != Positions::rotary) return;
  auto const block = step.block(plan.qkv.output);
  for (std::int64_t i = 0; i < groups_of(block, plan).size(); ++i)
    plan_rotate(step, block.rows.size(), turned_columns(plan, block), plan.sequence,
                plan.settings.head_dim());
}

} // namespace

void plan_attention_half(pmm::StepPlan& step, TransformerPlan const& plan, bool drops) {
  auto const& settings = plan.settings;
  plan_norm(step, plan);
  plan_linear(step, plan.qkv, settings.has_bias);
  plan_head_norms(step, plan);
  plan_joint_norms(step, plan);
  plan_turn(step, plan);
  plan_broadcast_key_values(step, plan);
  if (plan.exchanges_heads()) pmm::plan_to_whole(step, step.block(plan.qkv.output).num_stored);
  plan_attend(step, plan, drops);
  plan_linear(step, plan.projection, settings.has_bias);
}

void plan_attention_half_backward(pmm::StepPlan& step, TransformerPlan const& plan, bool drops) {
  auto const& settings = plan.settings;
  auto const shape = shape_of_group(plan);
  auto const groups = attended_groups(step.block(plan.qkv.output), plan);
  auto const part = plan.stage.splits_backward ? BackwardPart::inputs : BackwardPart::both;
  if (part == BackwardPart::inputs) plan_kept_gradient(step, step.block(plan.stream).num_stored);
  if (settings.recomputed.attention) plan_attend(step, plan, drops);
  plan_linear_backward(step, plan.projection, settings.has_bias, part);
  if (plan.exchanges_heads()) pmm::plan_to_whole(step, step.block(plan.projection.input).num_stored);
  for (auto g = groups.begin; g < groups.end; ++g) {
    if (g == groups.begin) plan_start_gather(step, plan);
    plan_finish_gather(step, plan);
    if (g + 1 < groups.end) plan_start_gather(step, plan);
    plan_attention_backward(step, shape, drops);
    if (g > groups.begin) plan_finish_sum(step, plan);
    plan_start_sum(step, plan);
  }
  plan_finish_sum(step, plan);
  if (plan.exchanges_heads()) pmm::plan_to_part(step, step.block(plan.qkv.output).num_stored);
  plan_sum_key_value_gradients(step, plan);
  plan_turn(step, plan);
  plan_joint_norms_backward(step, plan);
  plan_head_norms_backward(step, plan);
  if (settings.recomputed.norms && part == BackwardPart::both) plan_repeated_norm(step, plan);
  plan_linear_backward(step, plan.qkv, settings.has_bias, part);
  plan_norm_backward(step, plan, pmm::Residual::added);
}

void plan_attention_half_weights(pmm::StepPlan& step, TransformerPlan const& plan, bool drops) {
  auto const& settings = plan.settings;
  if (settings.recomputed.attention) plan_attend(step, plan, drops);
  plan_linear_backward(step, plan.projection, settings.has_bias, BackwardPart::weights);
  if (settings.recomputed.norms) plan_repeated_norm(step, plan);
  plan_linear_backward(step, plan.qkv, settings.has_bias, BackwardPart::weights);
}

void plan_attention_half_buffers(LinearWorkPlan& work, pmm::StepPlan const& step,
                                 TransformerPlan const& plan) {
  plan_linear_buffers(work, 0, step, plan.qkv, plan.settings.has_bias);
  plan_linear_buffers(work, 1, step, plan.projection, plan.settings.has_bias);
  if (plan.settings.query_key_norm == QueryKeyNorm::all)
    reserve_joint_norm_sums(work[0], JointNormLengths(step.shape(), step.coordinates(), plan));
}

template<class T>
AttentionHalf<T>::AttentionHalf(pmm::ProcessGrid const& grid, TransformerPlan const& plan,
                                BlockParameters<T> const& parameters, std::int64_t layer,
                                AttentionMemory<T> memory, TransformerScratch<T>& scratch,
                                std::shared_ptr<pmm::RotaryTable<T> const> rotary,
                                std::shared_ptr<KeyValueCache<T>> cache)
    : grid_(grid),
      plan_(plan),
      layer_(layer),
      scratch_(scratch),
      rotary_(std::move(rotary)),
      cache_(std::move(cache)),
      shape_(shape_of_group(plan)),
      num_groups_(groups_of(memory.qkv.block(), plan).size()),
      num_attended_(attended_groups(memory.qkv.block(), plan).size()),
      first_head_(memory.out.block().columns.begin / plan.settings.head_dim() +
                  (plan.exchanges_heads() ? plan.part * num_attended_ * shape_.num_heads : 0)),
      memory_(std::move(memory)),
      norm_(grid, plan, parameters.attention_norm, memory_.norm, scratch.row_sums, scratch.work.buffers(0)),
      qkv_linear_(grid, plan.qkv, parameters.qkv, scratch.work, 0),
      projection_(grid, plan.projection, parameters.projection, scratch.work, 1),
      head_norms_(grid, plan, parameters.query_key_norms, memory_.before_norm, scratch.query_key_sums),
      joint_norms_(grid, plan, parameters.query_key_norms, memory_.joint_norms, scratch.narrow_gradient,
                   scratch.query_key_sums, scratch.work.buffers(0)),
      normed_gradient_(grid, plan.stream, scratch.normed_gradient),
      qkv_gradient_(plan.stage.splits_backward
                        ? memory_.qkv_gradient
                        : pmm::DistMatrix<T>(grid, plan.qkv.output, scratch.wide_gradient)),
      out_gradient_(grid, plan.projection.input, scratch.narrow_gradient) {}

template<class T>
auto AttentionHalf<T>::attended() const -> Attended {
  auto const& heads = scratch_.heads;
  if (!heads.is_on()) return {memory_.qkv.local(), memory_.key_values, memory_.out.local()};
  return {heads.as_whole(memory_.qkv.storage()), {}, heads.as_whole(memory_.attended_out)};
}

/// Memory of the gradients by qkv, and the gradients by the output.
template<class T>
auto AttentionHalf<T>::attended_gradients(DefaultExec const& exec) const -> Attended {
  auto& heads = scratch_.heads;
  if (!heads.is_on()) return {qkv_gradient_.local(), scratch_.key_value_gradients, out_gradient_.local()};
  auto const out = heads.to_whole(exec, out_gradient_.local());
  return {heads.room(qkv_gradient_.block().columns.size()), {}, out};
}

template<class T>
auto AttentionHalf<T>::group(std::int64_t i, Attended const& all, DropoutKey const& dropout) const -> Group {
  auto const queries = shape_.query_columns();
  auto const keys = shape_.key_columns();
  auto const first = i * plan_.group_width();
  auto const key_values = plan_.shares_heads()
                              ? key_value_panel(plan_, all.shared)
                              : all.qkv.columns({first + queries, first + queries + 2 * keys});
  Group group;
  group.operands = {all.qkv.columns({first, first + queries}), key_values.columns({0, keys}),
                    key_values.columns({keys, 2 * keys})};
  group.out = all.out.columns({i * queries, (i + 1) * queries});
  group.log_sum_exp = part(memory_.log_sum_exp, i, shape_.num_row_numbers());
  group.row_terms = part(scratch_.row_terms, i, shape_.num_row_numbers());
  if (dropout.probability > 0)
    group.dropout = {dropout.probability, dropout.stream(dropout_stream(layer_, DropoutPlace::probabilities)),
                     scratch_.token_ids.attended, first_head_ + i * shape_.num_heads,
                     plan_.settings.num_heads};
  return group;
}

template<class T>
void AttentionHalf<T>::turn(DefaultExec const& exec, Turn direction, pmm::DistMatrix<T> const& qkv) const {
  if (!rotary_) return;
  pmm::Panel<T> const all(qkv.local());
  for (std::int64_t i = 0; i < num_groups_; ++i) {
    auto const first = i * plan_.group_width();
    pmm::rotate<T>(exec, grid_.passes(), *rotary_, plan_.sequence, direction,
                   all.columns({first, first + turned_columns(plan_, qkv.block())}),
                   positions_of_pass(cache_, plan_.sequence, scratch_.document_positions.own));
  }
}

/// Replaces keys and values of this rank's tokens by those of whole sequences, and starts to gather the next head.
template<class T>
void AttentionHalf<T>::gather(DefaultExec const& exec, std::int64_t i,
                              pmm::AttentionOperands<T>& operands) const {
  auto& gathered = scratch_.gathered;
  if (!gathered.is_on()) return;
  if (i == 0) gathered.start(exec, 0, {operands.k, operands.v});
  auto const [k, v] = gathered.finish(exec, i);
  operands.k = k;
  operands.v = v;
  if (i + 1 == num_attended_) return;
  auto const next = group(i + 1, attended(), {}).operands;
  gathered.start(exec, i + 1, {next.k, next.v});
}

template<class T>
void AttentionHalf<T>::attend(DefaultExec const& exec, DropoutKey const& dropout) const {
  auto const all = attended();
  for (std::int64_t i = 0; i < num_attended_; ++i) {
    auto of = group(i, all, dropout);
    gather(exec, i, of.operands);
    auto const d = shape_.key_columns();
    auto const cache = cache_ ? cache_->panel(layer_, i) : pmm::Panel<T>();
    if (cache_) {
      pmm::append_rows(exec, grid_.passes(), cache_->starts(), plan_.sequence, cache_->capacity(),
                       of.operands.k, cache.columns({0, d}));
      pmm::append_rows(exec, grid_.passes(), cache_->starts(), plan_.sequence, cache_->capacity(),
                       of.operands.v, cache.columns({d, 2 * d}));
    }
    if (cache_ && plan_.sequence == 1) {
      auto shape = shape_;
      shape.sequence = cache_->capacity();
      of.operands.k = cache.columns({0, d});
      of.operands.v = cache.columns({d, 2 * d});
      pmm::attend_cached<T>(exec, grid_.passes(), shape, of.operands, cache_->starts(), of.out,
                            cache_->scores());
    } else {
      pmm::attention_forward<T>(exec, grid_.passes(), shape_, of.operands, of.out, of.log_sum_exp, of.dropout,
                                scratch_.document_positions.attended);
    }
  }
  if (scratch_.heads.is_on()) scratch_.heads.to_part(exec, all.out, memory_.out.local());
}

template<class T>
void AttentionHalf<T>::forward(DefaultExec const& exec, DropoutKey const& dropout,
                               pmm::DistMatrix<T> const& x, pmm::DistMatrix<T> const& branch) {
  norm_.forward(exec, x, memory_.normed);
  qkv_linear_.forward(exec, memory_.normed, memory_.qkv);
  head_norms_.forward(exec, memory_.qkv);
  joint_norms_.forward(exec, memory_.qkv);
  turn(exec, Turn::forward, memory_.qkv);
  broadcast_key_values(exec, grid_, plan_, memory_.qkv, memory_.key_values);
  if (auto& heads = scratch_.heads; heads.is_on())
    heads.to_whole(exec, memory_.qkv.local(), heads.as_whole(memory_.qkv.storage()));
  attend(exec, dropout);
  projection_.forward(exec, memory_.out, branch);
}

template<class T>
void AttentionHalf<T>::backward(DefaultExec const& exec, DropoutKey const& dropout,
                                pmm::DistMatrix<T> const& x, pmm::DistMatrix<T> const& branch_gradient,
                                pmm::DistMatrix<T> const& dx) {
  auto& gathered = scratch_.gathered;
  auto const& again = plan_.settings.recomputed;
  auto const splits = plan_.stage.splits_backward;
  if (again.attention) attend(exec, dropout);
  if (splits) {
    keep_gradient(exec, grid_.passes(), branch_gradient.storage(), memory_.branch_gradient.storage());
    projection_.input_backward(exec, branch_gradient, out_gradient_);
  } else {
    projection_.backward(exec, memory_.out, branch_gradient, out_gradient_);
  }
  auto const all = attended();
  auto const gradients_of_all = attended_gradients(exec);
  for (std::int64_t i = 0; i < num_attended_; ++i) {
    auto of = group(i, all, dropout);
    auto gradients = group(i, gradients_of_all, dropout);
    KeysAndValues<T> const own{gradients.operands.k, gradients.operands.v};
    gather(exec, i, of.operands);
    if (gathered.is_on()) {
      gradients.operands.k = gathered.addends().k;
      gradients.operands.v = gathered.addends().v;
    }
    pmm::attention_backward<T>(exec, grid_.passes(), shape_, of.operands, of.out, of.log_sum_exp,
                               gradients.out, gradients.operands, of.row_terms, of.dropout,
                               scratch_.document_positions.attended);
    if (gathered.is_on()) gathered.start_sum(exec, own);
  }
  gathered.finish_sum(exec);
  if (scratch_.heads.is_on()) scratch_.heads.to_part(exec, gradients_of_all.qkv, qkv_gradient_.local());
  sum_key_value_gradients(exec, grid_, plan_, scratch_.key_value_gradients, qkv_gradient_);
  turn(exec, Turn::backward, qkv_gradient_);
  joint_norms_.backward(exec, qkv_gradient_);
  head_norms_.backward(exec, qkv_gradient_);
  if (splits) {
    qkv_linear_.input_backward(exec, qkv_gradient_, normed_gradient_);
  } else {
    if (again.norms) norm_.repeat(exec, x, memory_.normed);
    qkv_linear_.backward(exec, memory_.normed, qkv_gradient_, normed_gradient_);
  }
  norm_.backward(exec, x, normed_gradient_, pmm::Residual::added, dx);
}

template<class T>
void AttentionHalf<T>::weight_backward(DefaultExec const& exec, DropoutKey const& dropout,
                                       pmm::DistMatrix<T> const& x) {
  auto const& again = plan_.settings.recomputed;
  if (again.attention) attend(exec, dropout);
  projection_.weight_backward(exec, memory_.out, memory_.branch_gradient);
  if (again.norms) norm_.repeat(exec, x, memory_.normed);
  qkv_linear_.weight_backward(exec, memory_.normed, qkv_gradient_);
}

template class AttentionHalf<float>;
template class AttentionHalf<double>;

} // namespace orthant::models
