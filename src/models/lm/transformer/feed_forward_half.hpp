#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The second half of a block: what the feed-forward part adds to the residual stream.
//
//   H[z,y]      := norm(X)
//   U[z,x]      := sum_y H[z,y] W_up[y,x] + b
//   A[z,x]      := GELU(U), or SwiGLU of the pairs of U
//   branch[z,y] := sum_x A[z,x] W_down[x,y] + b
//
// or, if the layer has experts, what they make of H (lm/experts/expert_layer.hpp). Shared experts, through which every token passes, are
// such products, too, as wide as all of them together and without biases; their branch is added to that of the others.
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
  /// `grid` and `scratch` must outlive it.
  FeedForwardHalf(pmm::ProcessGrid const& grid, TransformerPlan const& plan,
                  BlockParameters<T> const& parameters, std::int64_t layer, FeedForwardMemory<T> memory,
                  TransformerScratch<T>& scratch);

  /// Up and down, of shared experts if there are experts; or nothing.
  [[nodiscard]] std::vector<ParallelLinear<T>*> linears();
  [[nodiscard]] bool has_linears() const { return up_.has_value(); }
  /// Null if the layer has none.
  [[nodiscard]] ExpertLayer<T> const* experts() const { return experts_ ? &*experts_ : nullptr; }

  /// All that backward() reads: as above but for the last product, or with experts but for the last sum. Collective over y and z, and
  /// with experts over the grid's world. Enqueues on exec.
  void compute(runtime::DefaultExec const& exec, RouterPass const& pass, pmm::DistMatrix<T> const& x);
  /// And then the branch. Collective over x and z.
  void combine(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& branch);
  /// dx := dx + the gradient by x, from that by the branch, which is not dx's memory, or is if nothing is dropped.
  void backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& x,
                pmm::DistMatrix<T> const& branch_gradient, pmm::DistMatrix<T> const& dx);

 private:
  /// Whether the branch and its gradient begin with those of linears.
  [[nodiscard]] pmm::Update update_by_experts() const;

  pmm::ProcessGrid const& grid_;
  FeedForward kind_;
  FeedForwardMemory<T> memory_;
  ParallelNorm<T> norm_;
  std::optional<ParallelLinear<T>> up_, down_;
  std::optional<ExpertLayer<T>> experts_;
  pmm::DistMatrix<T> expanded_, activated_;                                     // in memory_
  pmm::DistMatrix<T> normed_gradient_, expanded_gradient_, activated_gradient_; // lent
};

/// List what compute(), combine() and backward() do in that layer, and the buffers.
void plan_compute_feed_forward(pmm::StepPlan& step, TransformerPlan const& plan, std::int64_t layer,
                               bool is_training);
void plan_combine_feed_forward(pmm::StepPlan& step, TransformerPlan const& plan, std::int64_t layer);
void plan_feed_forward_half_backward(pmm::StepPlan& step, TransformerPlan const& plan, std::int64_t layer);
void plan_feed_forward_half_buffers(LinearWorkPlan& work, pmm::StepPlan const& step,
                                    TransformerPlan const& plan);

extern template class FeedForwardHalf<float>;
extern template class FeedForwardHalf<double>;

} // namespace orthant::models
