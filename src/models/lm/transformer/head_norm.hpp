#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// RMSNorm of the queries and keys, head by head, before rotary positions (Qwen3, arXiv 2505.09388). Each head x of d numbers, with one
// scale g [d] for all queries of a layer and one for all keys:
//
//   r := 1 / sqrt(sum_j x_j^2 / d + epsilon)      y_j := g_j r x_j
//   dx_j := r (g_j dy_j - r x_j m),  m := sum_j g_j dy_j r x_j / d          dg_j := sum over tokens and heads of dy_j r x_j
//
// A rank has whole heads, so only the gradients of g are summed over x.

#include "models/lm/transformer/block_memory.hpp"

namespace orthant::models {

template<class T>
class HeadNorms {
 public:
  /// Norms of a layer. `before`: memory of the queries and keys that the backward pass reads, with the placement of plan.qkv.output.
  /// `sums`: scratch memory of num_head_norm_sums() numbers. `grid` must outlive this object.
  HeadNorms(pmm::ProcessGrid const& grid, TransformerPlan const& plan, HeadNormParameters<T> parameters,
            pmm::DistMatrix<T> before, runtime::Vector<T> sums);

  /// Normalizes the queries and keys in `qkv`. No-op without head norms. Not collective. Enqueues on exec.
  void forward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& qkv) const;
  /// Turns the gradients by the normalized queries and keys into those by `before`, and computes the gradients of the scales over this
  /// rank's rows, which the caller must sum over z. Collective over x. Enqueues on exec.
  void backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& qkv_gradient) const;

 private:
  template<class Body>
  void for_each_panel(pmm::DistMatrix<T> const& qkv, Body const& body) const;

  pmm::ProcessGrid const& grid_;
  TransformerPlan plan_;
  HeadNormParameters<T> parameters_;
  pmm::DistMatrix<T> before_;
  runtime::Vector<T> sums_;
};

/// Length of the scratch memory; 0 without head norms.
[[nodiscard]] std::int64_t num_head_norm_sums(TransformerSettings const& settings);
/// Add the operations to `step`.
void plan_head_norms(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_head_norms_backward(pmm::StepPlan& step, TransformerPlan const& plan);

extern template class HeadNorms<float>;
extern template class HeadNorms<double>;

} // namespace orthant::models
