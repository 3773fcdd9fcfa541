#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Second half of a block: the branch of the feed-forward part, which is added to the residual stream.
//
//   H[z,y]      := norm(X)
//   U[z,x]      := sum_y H[z,y] W_up[y,x] + b
//   A[z,x]      := GELU(U), or SwiGLU of the pairs of U
//   branch[z,y] := sum_x A[z,x] W_down[x,y] + b
//
// A layer with experts computes the branch from H by an ExpertLayer instead (models/lm/experts/expert_layer.hpp). Shared experts,
// which all tokens use, are then computed by the products above, without biases and as wide as all shared experts together. Both
// branches are added.
//
// Source of shared experts: DeepSeekMoE (arXiv 2401.06066), section 3.2.

#include "models/lm/experts/expert_layer.hpp"
#include "models/lm/transformer/block_memory.hpp"

#include <optional>
#include <vector>

namespace orthant::models {

template<class T>
class FeedForwardHalf {
 public:
  /// `grid` and `scratch` must outlive this object.
  FeedForwardHalf(pmm::ProcessGrid const& grid, TransformerPlan const& plan,
                  BlockParameters<T> const& parameters, std::int64_t layer, FeedForwardMemory<T> memory,
                  TransformerScratch<T>& scratch);

  /// Products up and down (of the shared experts in a layer with experts); empty if the layer has neither.
  [[nodiscard]] std::vector<ParallelLinear<T>*> linears();
  [[nodiscard]] bool has_linears() const { return up_.has_value(); }
  /// Experts of the layer, or null.
  [[nodiscard]] ExpertLayer<T> const* experts() const { return experts_ ? &*experts_ : nullptr; }

  /// Computes all that backward() reads: the equations above except for the last product, and with experts up to give_back().
  /// Collective over y and z, with experts over the ranks of the stage. Enqueues on exec.
  void compute(runtime::DefaultExec const& exec, RouterPass const& pass, pmm::DistMatrix<T> const& x);
  /// Computes `branch`, after compute(). Collective over x and z. Enqueues on exec.
  void combine(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& branch);
  /// dx := dx + the gradient by x. branch_gradient may share the memory of dx if dropout is off, and must not otherwise.
  /// Collective over x, y and z, with experts over the ranks of the stage. Enqueues on exec.
  void backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& x,
                pmm::DistMatrix<T> const& branch_gradient, pmm::DistMatrix<T> const& dx);
  /// The gradients of the weights and biases of the products, if backward passes are split and backward() left them. There must be no
  /// experts. Collective over z. Enqueues on exec.
  void weight_backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& x);

 private:
  /// Results that forward passes do not keep.
  void compute_again(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& x);
  /// Whether experts add to the results of the shared experts, or assign because there are none.
  [[nodiscard]] pmm::Update update_by_experts() const;

  pmm::ProcessGrid const& grid_;
  FeedForward kind_;
  Recomputation again_;
  bool splits_;
  FeedForwardMemory<T> memory_;
  ParallelNorm<T> norm_;
  std::optional<ParallelLinear<T>> up_, down_;
  std::optional<ExpertLayer<T>> experts_;
  pmm::DistMatrix<T> expanded_, activated_; // in memory_, or the latter in the scratch memory
  pmm::DistMatrix<T> normed_gradient_, expanded_gradient_,
      activated_gradient_; // in the scratch memory, or expanded_gradient_ in memory_
};

/// Add the operations of compute(), combine(), backward() and weight_backward() of a layer to `step`, and reserve their buffers in `work`.
void plan_compute_feed_forward(pmm::StepPlan& step, TransformerPlan const& plan, std::int64_t layer,
                               bool is_training);
void plan_combine_feed_forward(pmm::StepPlan& step, TransformerPlan const& plan, std::int64_t layer);
void plan_feed_forward_half_backward(pmm::StepPlan& step, TransformerPlan const& plan, std::int64_t layer);
void plan_feed_forward_half_weights(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_feed_forward_half_buffers(LinearWorkPlan& work, pmm::StepPlan const& step,
                                    TransformerPlan const& plan);

extern template class FeedForwardHalf<float>;
extern template class FeedForwardHalf<double>;

} // namespace orthant::models
