// SPDX-License-Identifier: Apache-2.0
#include "models/lm/transformer/feed_forward_half.hpp"

#include "pmm/token_rows/feed_forward.hpp"

namespace orthant::models {

using runtime::DefaultExec;

namespace {

/// Products up and down of a layer, and whether they have biases.
struct HalfLinears {
  LinearPlan3d const* up = nullptr; // null if the layer has no such products
  LinearPlan3d const* down = nullptr;
  bool has_bias = false;
};

HalfLinears linears_of(TransformerPlan const& plan, bool has_experts) {
  if (!has_experts) return {&plan.up, &plan.down, plan.settings.has_bias};
  if (plan.settings.experts.has_shared()) return {&plan.shared_up, &plan.shared_down, false};
  return {};
}

pmm::Update update_beside(HalfLinears const& linears) {
  return linears.up == nullptr ? pmm::Update::assign : pmm::Update::add;
}

} // namespace

void plan_compute_feed_forward(pmm::StepPlan& step, TransformerPlan const& plan, std::int64_t layer,
                               bool is_training) {
  auto const has_experts = plan.settings.experts.has_layer(layer);
  auto const linears = linears_of(plan, has_experts);
  plan_norm(step, plan);
  if (has_experts) plan_start_experts(step, plan.experts, layer, is_training);
  if (linears.up != nullptr) {
    auto const count = step.block(linears.down->input).num_stored;
    plan_linear(step, *linears.up, linears.has_bias);
    pmm::plan_activate(step, plan.settings.activation, count);
  }
  if (has_experts) plan_compute_experts(step, plan.experts, layer, is_training);
}

void plan_combine_feed_forward(pmm::StepPlan& step, TransformerPlan const& plan, std::int64_t layer) {
  auto const has_experts = plan.settings.experts.has_layer(layer);
  auto const linears = linears_of(plan, has_experts);
  if (linears.down != nullptr) plan_linear(step, *linears.down, linears.has_bias);
  if (has_experts) plan_combine_experts(step, plan.experts, layer, update_beside(linears));
}

void plan_feed_forward_half_backward(pmm::StepPlan& step, TransformerPlan const& plan, std::int64_t layer) {
  auto const has_experts = plan.settings.experts.has_layer(layer);
  auto const linears = linears_of(plan, has_experts);
  auto const& again = plan.settings.recomputed;
  auto const part = plan.stage.splits_backward ? BackwardPart::inputs : BackwardPart::both;
  if (has_experts) plan_start_expert_layer_backward(step, plan.experts, layer);
  if (part == BackwardPart::inputs) plan_kept_gradient(step, step.block(plan.stream).num_stored);
  if (again.norms && part == BackwardPart::both) plan_repeated_norm(step, plan);
  if (linears.up != nullptr) {
    auto const count = step.block(linears.down->input).num_stored;
    if (again.activations && part == BackwardPart::both)
      pmm::plan_activate(step, plan.settings.activation, count);
    plan_linear_backward(step, *linears.down, linears.has_bias, part);
    pmm::plan_activate_backward(step, plan.settings.activation, count);
    plan_linear_backward(step, *linears.up, linears.has_bias, part);
  }
  if (has_experts) plan_expert_layer_backward(step, plan.experts, layer, update_beside(linears));
  plan_norm_backward(step, plan, pmm::Residual::added);
}

void plan_feed_forward_half_weights(pmm::StepPlan& step, TransformerPlan const& plan) {
  auto const linears = linears_of(plan, false);
  auto const& again = plan.settings.recomputed;
  if (again.norms) plan_repeated_norm(step, plan);
  if (again.activations)
    pmm::plan_activate(step, plan.settings.activation, step.block(linears.down->input).num_stored);
  plan_linear_backward(step, *linears.down, linears.has_bias, BackwardPart::weights);
  plan_linear_backward(step, *linears.up, linears.has_bias, BackwardPart::weights);
}

void plan_feed_forward_half_buffers(LinearWorkPlan& work, pmm::StepPlan const& step,
                                    TransformerPlan const& plan) {
  for (auto const has_experts : {false, true}) {
    if (!plan.has_block(has_experts)) continue;
    auto const linears = linears_of(plan, has_experts);
    if (linears.up == nullptr) continue;
    plan_linear_buffers(work, 0, step, *linears.up, linears.has_bias);
    plan_linear_buffers(work, 1, step, *linears.down, linears.has_bias);
  }
}

template<class T>
FeedForwardHalf<T>::FeedForwardHalf(pmm::ProcessGrid const& grid, TransformerPlan const& plan,
                                    BlockParameters<T> const& parameters, std::int64_t layer,
                                    FeedForwardMemory<T> memory, TransformerScratch<T>& scratch)
    : grid_(grid),
      kind_(plan.settings.activation),
      again_(plan.settings.recomputed),
      splits_(plan.stage.splits_backward),
      memory_(std::move(memory)),
      norm_(grid, plan, parameters.feed_forward_norm, memory_.norm, scratch.row_sums,
            scratch.work.buffers(0)),
      normed_gradient_(grid, plan.stream, scratch.normed_gradient) {
  auto const has_experts = plan.settings.experts.has_layer(layer);
  if (has_experts)
    experts_.emplace(grid, plan.experts, parameters.experts, layer, memory_.experts, scratch.experts);
  auto const linears = linears_of(plan, has_experts);
  if (linears.up == nullptr) return;
  up_.emplace(grid, *linears.up, parameters.up, scratch.work, 0);
  down_.emplace(grid, *linears.down, parameters.down, scratch.work, 1);
  expanded_ = has_experts ? memory_.shared_expanded : memory_.expanded;
  activated_ = has_experts ? memory_.shared_activated : memory_.activated;
  expanded_gradient_ = splits_ ? memory_.expanded_gradient
                               : pmm::DistMatrix<T>(grid, linears.up->output, scratch.wide_gradient);
  activated_gradient_ = {grid, linears.down->input, scratch.narrow_gradient};
}

template<class T>
std::vector<ParallelLinear<T>*> FeedForwardHalf<T>::linears() {
  if (!has_linears()) return {};
  return {&*up_, &*down_};
}

template<class T>
pmm::Update FeedForwardHalf<T>::update_by_experts() const {
  return has_linears() ? pmm::Update::add : pmm::Update::assign;
}

template<class T>
void FeedForwardHalf<T>::compute(DefaultExec const& exec, RouterPass const& pass,
                                 pmm::DistMatrix<T> const& x) {
  norm_.forward(exec, x, memory_.normed);
  if (experts_) experts_->start(exec, pass, memory_.normed); // in flight while shared experts are computed
  if (up_) {
    up_->forward(exec, memory_.normed, expanded_);
    pmm::activate<T>(exec, grid_.passes(), kind_, expanded_.local(), activated_.local());
  }
  if (experts_) experts_->compute(exec);
}

template<class T>
void FeedForwardHalf<T>::combine(DefaultExec const& exec, pmm::DistMatrix<T> const& branch) {
  if (down_) down_->forward(exec, activated_, branch);
  if (experts_) experts_->combine(exec, branch, update_by_experts());
}

template<class T>
void FeedForwardHalf<T>::backward(DefaultExec const& exec, pmm::DistMatrix<T> const& x,
                                  pmm::DistMatrix<T> const& branch_gradient, pmm::DistMatrix<T> const& dx) {
  if (experts_) experts_->start_backward(exec, branch_gradient);
  if (splits_) {
    keep_gradient(exec, grid_.passes(), branch_gradient.storage(), memory_.branch_gradient.storage());
    down_->input_backward(exec, branch_gradient, activated_gradient_);
  } else {
    compute_again(exec, x);
    if (down_) down_->backward(exec, activated_, branch_gradient, activated_gradient_);
  }
  if (down_)
    pmm::activate_backward<T>(exec, grid_.passes(), kind_, expanded_.local(), activated_gradient_.local(),
                              expanded_gradient_.local());
  if (splits_)
    up_->input_backward(exec, expanded_gradient_, normed_gradient_);
  else if (up_)
    up_->backward(exec, memory_.normed, expanded_gradient_, normed_gradient_);
  if (experts_) experts_->backward(exec, memory_.normed, normed_gradient_, update_by_experts());
  norm_.backward(exec, x, normed_gradient_, pmm::Residual::added, dx);
}

template<class T>
void FeedForwardHalf<T>::compute_again(DefaultExec const& exec, pmm::DistMatrix<T> const& x) {
  if (again_.norms) norm_.repeat(exec, x, memory_.normed);
  if (again_.activations && down_)
    pmm::activate<T>(exec, grid_.passes(), kind_, expanded_.local(), activated_.local());
}

template<class T>
void FeedForwardHalf<T>::weight_backward(DefaultExec const& exec, pmm::DistMatrix<T> const& x) {
  compute_again(exec, x);
  down_->weight_backward(exec, activated_, memory_.branch_gradient);
  up_->weight_backward(exec, memory_.normed, expanded_gradient_);
}

template class FeedForwardHalf<float>;
template class FeedForwardHalf<double>;

} // namespace orthant::models
