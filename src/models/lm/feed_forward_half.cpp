// SPDX-License-Identifier: Apache-2.0
#include "models/lm/feed_forward_half.hpp"

#include "pmm/token_rows/feed_forward.hpp"

namespace orthant::models {

using runtime::DefaultExec;

void plan_feed_forward_half_again(pmm::StepPlan& step, TransformerPlan const& plan, std::int64_t layer,
                                  bool is_training) {
  plan_norm(step, plan);
  if (plan.settings.experts.has_layer(layer)) {
    plan_compute_experts(step, plan.experts, layer, is_training);
    return;
  }
  auto const count = step.block(plan.down.input).num_stored;
  plan_linear(step, plan.up, plan.settings.has_bias);
  if (plan.settings.activation == FeedForward::gelu)
    pmm::plan_gelu(step, count);
  else
    pmm::plan_swiglu(step, count);
}

void plan_feed_forward_half(pmm::StepPlan& step, TransformerPlan const& plan, std::int64_t layer,
                            bool is_training) {
  plan_feed_forward_half_again(step, plan, layer, is_training);
  if (plan.settings.experts.has_layer(layer))
    plan_combine_experts(step, plan.experts, layer);
  else
    plan_linear(step, plan.down, plan.settings.has_bias);
}

void plan_feed_forward_half_backward(pmm::StepPlan& step, TransformerPlan const& plan, std::int64_t layer) {
  if (plan.settings.experts.has_layer(layer)) {
    plan_expert_layer_backward(step, plan.experts, layer);
    plan_norm_backward(step, plan, pmm::Residual::added);
    return;
  }
  auto const count = step.block(plan.down.input).num_stored;
  plan_linear_backward(step, plan.down, plan.settings.has_bias);
  if (plan.settings.activation == FeedForward::gelu)
    pmm::plan_gelu_backward(step, count);
  else
    pmm::plan_swiglu_backward(step, count);
  plan_linear_backward(step, plan.up, plan.settings.has_bias);
  plan_norm_backward(step, plan, pmm::Residual::added);
}

void plan_feed_forward_half_buffers(LinearWorkPlan& work, pmm::StepPlan const& step,
                                    TransformerPlan const& plan) {
  if (plan.settings.experts.has_all_layers()) return;
  plan_linear_buffers(work, 0, step, plan.up, plan.settings.has_bias);
  plan_linear_buffers(work, 1, step, plan.down, plan.settings.has_bias);
}

template<class T>
FeedForwardHalf<T>::FeedForwardHalf(pmm::ProcessGrid const& grid, TransformerPlan const& plan,
                                    BlockParameters<T> const& parameters, std::int64_t layer,
                                    FeedForwardMemory<T> memory, TransformerScratch<T>& scratch)
    : grid_(grid),
      kind_(plan.settings.activation),
      memory_(std::move(memory)),
      norm_(grid, plan, parameters.feed_forward_norm, memory_.norm, scratch.row_sums,
            scratch.work.buffers(0)),
      normed_gradient_(grid, plan.stream, scratch.normed_gradient),
      expanded_gradient_(grid, plan.up.output, scratch.wide_gradient),
      activated_gradient_(grid, plan.down.input, scratch.narrow_gradient) {
  if (plan.settings.experts.has_layer(layer)) {
    experts_.emplace(grid, plan.experts, parameters.experts, layer, memory_.experts, scratch.experts);
    return;
  }
  up_.emplace(grid, plan.up, parameters.up, scratch.work, 0);
  down_.emplace(grid, plan.down, parameters.down, scratch.work, 1);
}

template<class T>
std::vector<ParallelLinear<T>*> FeedForwardHalf<T>::linears() {
  if (experts_) return {};
  return {&*up_, &*down_};
}

template<class T>
void FeedForwardHalf<T>::recompute(DefaultExec const& exec, RouterPass const& pass,
                                   pmm::DistMatrix<T> const& x) {
  norm_.forward(exec, x, memory_.normed);
  if (experts_) {
    experts_->compute(exec, pass, memory_.normed);
    return;
  }
  up_->forward(exec, memory_.normed, memory_.expanded);
  if (kind_ == FeedForward::gelu)
    pmm::gelu<T>(exec, grid_.passes(), memory_.expanded.local(), memory_.activated.local());
  else
    pmm::swiglu<T>(exec, grid_.passes(), memory_.expanded.local(), memory_.activated.local());
}

template<class T>
void FeedForwardHalf<T>::forward(DefaultExec const& exec, RouterPass const& pass, pmm::DistMatrix<T> const& x,
                                 pmm::DistMatrix<T> const& branch) {
  recompute(exec, pass, x);
  if (experts_)
    experts_->combine(exec, branch);
  else
    down_->forward(exec, memory_.activated, branch);
}

template<class T>
void FeedForwardHalf<T>::backward(DefaultExec const& exec, pmm::DistMatrix<T> const& x,
                                  pmm::DistMatrix<T> const& branch_gradient, pmm::DistMatrix<T> const& dx) {
  if (experts_) {
    experts_->backward(exec, memory_.normed, branch_gradient, normed_gradient_);
    norm_.backward(exec, x, normed_gradient_, pmm::Residual::added, dx);
    return;
  }
  down_->backward(exec, memory_.activated, branch_gradient, activated_gradient_);
  if (kind_ == FeedForward::gelu)
    pmm::gelu_backward<T>(exec, grid_.passes(), memory_.expanded.local(), activated_gradient_.local(),
                          expanded_gradient_.local());
  else
    pmm::swiglu_backward<T>(exec, grid_.passes(), memory_.expanded.local(), activated_gradient_.local(),
                            expanded_gradient_.local());
  up_->backward(exec, memory_.normed, expanded_gradient_, normed_gradient_);
  norm_.backward(exec, x, normed_gradient_, pmm::Residual::added, dx);
}

template class FeedForwardHalf<float>;
template class FeedForwardHalf<double>;

} // namespace orthant::models
