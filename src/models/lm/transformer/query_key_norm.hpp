#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Norms of queries and keys before rotary positions: HeadNorms (QueryKeyNorm::head) and JointNorms (QueryKeyNorm::all).
//
// RMSNorm of the queries and keys, head by head, before rotary positions (Qwen3, arXiv 2505.09388). Each head x of d numbers, with one
// scale g [d] for all queries of a layer and one for all keys:
//
//   r := 1 / sqrt(sum_j x_j^2 / d + epsilon)      y_j := g_j r x_j
//   dx_j := r (g_j dy_j - r x_j m),  m := sum_j g_j dy_j r x_j / d          dg_j := sum over tokens and heads of dy_j r x_j
//
// A rank has whole heads, so only the gradients of g are summed over x.
//
// RMSNorm of all queries of a token together, and of all its keys, before rotary positions (OLMoE, arXiv 2409.02060). The queries are one
// row of D = heads x numbers per head, with one scale per number, and so are the keys (pmm/token_rows/row_norm.hpp). The heads are split
// over x, so each direction sums two numbers per token over x: one of the queries, one of the keys. If several ranks share a key-value
// head, only the last one of them has keys; the others add zeros. The scales are split like the heads.

#include "models/lm/transformer/block_memory.hpp"

namespace orthant::models {

template<class T>
class HeadNorms {
 public:
  /// Norms of a layer. `before`: memory of the queries and keys that the backward pass reads, with the placement of plan.qkv.output.
  /// `sums`: scratch memory of num_head_norm_sums() numbers. `grid` must outlive this object.
  HeadNorms(pmm::ProcessGrid const& grid, TransformerPlan const& plan, QueryKeyParameters<T> parameters,
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
  QueryKeyParameters<T> parameters_;
  pmm::DistMatrix<T> before_;
  runtime::Vector<T> sums_;
};

/// Length of the scratch memory; 0 without head norms.
[[nodiscard]] std::int64_t num_head_norm_sums(TransformerSettings const& settings);
/// Add the operations to `step`.
void plan_head_norms(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_head_norms_backward(pmm::StepPlan& step, TransformerPlan const& plan);

template<class T>
class JointNorms {
 public:
  /// Norms of a layer. `memory`: what the backward pass reads. `packed`: scratch memory as long as the queries of the rank. `scratch`: the
  /// same for its keys, and two numbers per token. `work`: scratch memory of partial sums. `grid` must outlive this object.
  JointNorms(pmm::ProcessGrid const& grid, TransformerPlan const& plan, QueryKeyParameters<T> parameters,
             JointNormMemory<T> memory, runtime::Vector<T> packed, runtime::Vector<T> scratch,
             std::shared_ptr<pmm::Workspace<T>> work);

  /// Normalizes the queries and keys in `qkv`. No-op without joint norms. Collective over x. Enqueues on exec.
  void forward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& qkv) const;
  /// Turns the gradients by the normalized queries and keys into those by the queries and keys before, and computes the gradients of the
  /// scales over this rank's rows, which the caller must sum over z. Collective over x. Enqueues on exec.
  void backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& qkv_gradient) const;

 private:
  /// Queries or keys: their columns in each group of columns of `qkv`, and their memory.
  struct Part {
    runtime::Range columns;
    NormParameters<T> parameters;
    runtime::Matrix<T> before, packed; // [tokens x columns of all groups]
    pmm::RowNormState<T> state;
    runtime::Vector<T> sums; // [tokens]
    pmm::RowNormSettings settings;
  };
  [[nodiscard]] std::vector<Part> make_parts(QueryKeyParameters<T> const& parameters,
                                             JointNormMemory<T> const& memory) const;
  [[nodiscard]] pmm::RowParts row_parts() const;
  void pack(runtime::DefaultExec const& exec, Part const& part, pmm::DistMatrix<T> const& qkv,
            runtime::Matrix<T> const& to) const;
  void unpack(runtime::DefaultExec const& exec, Part const& part, pmm::DistMatrix<T> const& qkv) const;
  template<class First, class Second>
  void for_each_part(runtime::DefaultExec const& exec, First const& first, Second const& second) const;

  pmm::ProcessGrid const& grid_;
  TransformerPlan plan_;
  std::int64_t num_groups_;
  runtime::Vector<T> packed_queries_, scratch_, sums_;
  std::shared_ptr<pmm::Workspace<T>> work_;
  std::vector<Part> parts_; // queries, keys; empty without joint norms
};

/// Add the operations of forward() and of backward() to `step`, and reserve the buffers of partial sums in `work`, a Workspace or a
/// WorkspacePlan.
void plan_joint_norms(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_joint_norms_backward(pmm::StepPlan& step, TransformerPlan const& plan);
template<class Work>
void reserve_joint_norm_sums(Work& work, JointNormLengths const& lengths) {
  for (auto const columns : {lengths.query_columns, lengths.key_columns})
    if (columns > 0) pmm::reserve_column_sums(work, lengths.rows, columns);
}

extern template class HeadNorms<float>;
extern template class HeadNorms<double>;
extern template class JointNorms<float>;
extern template class JointNorms<double>;

} // namespace orthant::models
