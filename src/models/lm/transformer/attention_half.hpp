#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// First half of a block: the branch of attention, which is added to the residual stream.
//
//   H[z,y]      := norm(X)
//   Q,K,V[z,x]  := sum_y H[z,y] W_qkv[y,x] + b             key-value heads with their query heads; Q and K normalized if there are such
//                                                         norms, and rotated if positions are rotary
//   K,V         := K and V of the rank that has them       only if ranks share a head (shared_key_values.hpp)
//   K,V         := those of whole sequences                if ranks along context share these, head by head; or
//   Q,K,V       := those of whole sequences, fewer heads   if they exchange heads (pmm::HeadExchange)
//   O[z,x]      := attention(Q, K, V)                      local (pmm/attention); with earlier keys and values if there is a cache;
//                                                         within documents if they are masked
//   branch[z,y] := sum_x O[z,x] W_proj[x,y] + b

#include "models/lm/transformer/key_value_cache.hpp"
#include "models/lm/transformer/query_key_norm.hpp"
#include "pmm/attention/attention.hpp"

#include <memory>

namespace orthant::models {

template<class T>
class AttentionHalf {
 public:
  /// `rotary` is null if positions are learned; `cache` is null if no keys and values are kept. `grid` and `scratch` must outlive this
  /// object.
  AttentionHalf(pmm::ProcessGrid const& grid, TransformerPlan const& plan,
                BlockParameters<T> const& parameters, std::int64_t layer, AttentionMemory<T> memory,
                TransformerScratch<T>& scratch, std::shared_ptr<pmm::RotaryTable<T> const> rotary,
                std::shared_ptr<KeyValueCache<T>> cache);

  [[nodiscard]] ParallelLinear<T>& qkv() { return qkv_linear_; }
  [[nodiscard]] ParallelLinear<T>& projection() { return projection_; }

  /// Computes `branch` from the stream `x` (X above). With a cache, it adds the keys and values; a pass over one token per sequence then
  /// attends to all tokens before it, a longer one must begin at position 0. Collective over x, y and z. Enqueues on exec.
  void forward(runtime::DefaultExec const& exec, DropoutKey const& dropout, pmm::DistMatrix<T> const& x,
               pmm::DistMatrix<T> const& branch);
  /// dx := dx + the gradient by x. branch_gradient may share the memory of dx if dropout is off, and must not otherwise.
  /// Collective over x, y and z. Enqueues on exec.
  void backward(runtime::DefaultExec const& exec, DropoutKey const& dropout, pmm::DistMatrix<T> const& x,
                pmm::DistMatrix<T> const& branch_gradient, pmm::DistMatrix<T> const& dx);
  /// The gradients of the weights and biases of the products, if backward passes are split and backward() left them. Collective over z.
  /// Enqueues on exec.
  void weight_backward(runtime::DefaultExec const& exec, DropoutKey const& dropout,
                       pmm::DistMatrix<T> const& x);

 private:
  /// Operands of one key-value head and its query heads: columns of the matrices.
  struct Group {
    pmm::AttentionOperands<T> operands;
    pmm::Panel<T> out;
    runtime::Vector<T> log_sum_exp, row_terms;
    pmm::AttentionDropout dropout;
  };
  /// Matrices of all groups whose attention this rank computes, or their gradients. `shared`: keys and values; read only if ranks share the
  /// head.
  struct Attended {
    pmm::Panel<T> qkv;
    runtime::Vector<T> shared;
    pmm::Panel<T> out;
  };
  [[nodiscard]] Attended attended() const;
  [[nodiscard]] Attended attended_gradients(runtime::DefaultExec const& exec) const;
  [[nodiscard]] Group group(std::int64_t i, Attended const& all, DropoutKey const& dropout) const;
  void gather(runtime::DefaultExec const& exec, std::int64_t i, pmm::AttentionOperands<T>& operands) const;
  void attend(runtime::DefaultExec const& exec, DropoutKey const& dropout) const;
  void turn(runtime::DefaultExec const& exec, pmm::Turn direction, pmm::DistMatrix<T> const& qkv) const;

  pmm::ProcessGrid const& grid_;
  TransformerPlan plan_;
  std::int64_t layer_;
  TransformerScratch<T>& scratch_;
  std::shared_ptr<pmm::RotaryTable<T> const> rotary_;
  std::shared_ptr<KeyValueCache<T>> cache_;
  pmm::AttentionShape shape_; // of one group
  std::int64_t num_groups_;   // key-value heads of which this rank has columns
  std::int64_t num_attended_,
      first_head_; // those whose attention it computes, and the first query head of these
  AttentionMemory<T> memory_;
  ParallelNorm<T> norm_;
  ParallelLinear<T> qkv_linear_, projection_;
  HeadNorms<T> head_norms_;
  JointNorms<T> joint_norms_;
  pmm::DistMatrix<T> normed_gradient_, qkv_gradient_,
      out_gradient_; // in scratch_, or qkv_gradient_ in memory_
};

/// Add the operations of forward(), backward() and weight_backward() to `step`, and reserve their buffers in `work`. `drops`: dropout is on.
void plan_attention_half(pmm::StepPlan& step, TransformerPlan const& plan, bool drops);
void plan_attention_half_backward(pmm::StepPlan& step, TransformerPlan const& plan, bool drops);
void plan_attention_half_weights(pmm::StepPlan& step, TransformerPlan const& plan, bool drops);
void plan_attention_half_buffers(LinearWorkPlan& work, pmm::StepPlan const& step,
                                 TransformerPlan const& plan);

extern template class AttentionHalf<float>;
extern template class AttentionHalf<double>;

} // namespace orthant::models
