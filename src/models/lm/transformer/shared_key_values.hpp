#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Keys and values that several ranks need: ranks along x that share a key-value head, and ranks along context that share sequences (below).
//
// Ranks along x share a head if x has more ranks than there are key-value heads. The columns of the head are split between its r ranks:
//
//   rank 0 .. r - 2     [its query heads]
//   rank r - 1          [its query heads | key | value]
//
//   KV[z,-]     := broadcast of (K, V)                      before attention, from rank r - 1 to all r ranks
//   dK, dV      := sum over the r ranks of their addends    after attention, to rank r - 1
//
// Both are collectives over runs of r ranks along x. No parameter is replicated, and the order of weights is the same on every
// grid.

#include "models/lm/plan/transformer_plan.hpp"
#include "pmm/attention/attention.hpp"
#include "pmm/gemm/local_gemm.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "runtime/comm/collectives.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace orthant::models {

/// Number of elements of KV on a rank, [tokens x 2 head_dim]; 0 if no head is shared.
[[nodiscard]] std::int64_t num_shared_numbers(TransformerPlan const& plan);
/// Whether the block `qkv` of queries, keys and values contains keys and values.
[[nodiscard]] bool holds_key_values(TransformerPlan const& plan, pmm::Block const& qkv);

/// View of KV as a matrix with the keys in the first half of the columns.
template<class T>
[[nodiscard]] pmm::Panel<T> key_value_panel(TransformerPlan const& plan,
                                            runtime::Vector<T> const& key_values) {
  pmm::Panel<T> panel;
  panel.data = key_values.data();
  panel.num_rows = plan.sequences.size() * plan.sequence;
  panel.num_columns = panel.row_stride = 2 * plan.settings.head_dim();
  return panel;
}

/// key_values := KV, from the last columns of `qkv`. Collective over the ranks that share the head. Enqueues on exec.
template<class T>
void broadcast_key_values(runtime::DefaultExec const& exec, pmm::ProcessGrid const& grid,
                          TransformerPlan const& plan, pmm::DistMatrix<T> const& qkv,
                          runtime::Vector<T> const& key_values);
/// Last columns of qkv_gradient, on rank r - 1, := the sum of `gradients`, which is overwritten by the sum. Collective over the
/// ranks that share the head. Enqueues on exec.
template<class T>
void sum_key_value_gradients(runtime::DefaultExec const& exec, pmm::ProcessGrid const& grid,
                             TransformerPlan const& plan, runtime::Vector<T> const& gradients,
                             pmm::DistMatrix<T> const& qkv_gradient);

/// Add the operations of the two functions above to `step`.
void plan_broadcast_key_values(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_sum_key_value_gradients(pmm::StepPlan& step, TransformerPlan const& plan);

// Keys and values of whole sequences, if the C ranks along context share the sequences (pmm::SequencePart). They are gathered head by head,
// so that a rank holds those of at most two heads at a time, and a head is gathered while the attention of the head before is computed:
//
//   K, V [whole sequences]     := all_gather over context of (K, V)               before the attention of a key-value head, in each pass
//   dK, dV [tokens of a rank]  := reduce_scatter over context of the addends      after its backward pass
//
// With m tokens of a rank and d numbers per head, a rank sends 2 (C - 1) m d words per key-value head forward, as much as by passing keys
// and values round (ring attention, Liu et al., arXiv 2310.01889), and twice as many backward. Partial softmaxes need not be merged, so the
// arithmetic of a query is that of one rank. Source: Grattafiori et al., "The Llama 3 Herd of Models" (arXiv 2407.21783), section 3.3.2;
// order of the chunks: Zhu, "ring-flash-attention" (zigzag). The heads that follow each other are of Orthant.

/// Shape of the attention of one key-value head of a rank. If heads are exchanged, its queries are those of whole sequences, too.
[[nodiscard]] pmm::AttentionShape shape_of_group(TransformerPlan const& plan);

/// Keys and values of a head, or their gradients.
template<class T>
struct KeysAndValues {
  pmm::Panel<T> k, v;
};

/// Buffers that all layers share. The functions are collective over context, and enqueue on exec. Heads are numbered from 0 in each pass.
template<class T>
class GatheredKeyValues {
 public:
  /// Empty unless the plan gathers keys and values. `grid` must outlive this object. Not collective.
  GatheredKeyValues(pmm::ProcessGrid const& grid, TransformerPlan const& plan);

  [[nodiscard]] bool is_on() const { return !gathered_.empty(); }

  /// Starts to gather head `i` from keys and values of this rank's tokens, `own`.
  void start(runtime::DefaultExec const& exec, std::int64_t i, KeysAndValues<T> const& own);
  /// Completes start(i), and returns the keys and values of whole sequences. They are valid until the next finish(); start(i + 1) may come
  /// before that.
  [[nodiscard]] KeysAndValues<T> finish(runtime::DefaultExec const& exec, std::int64_t i);

  /// Memory for this rank's addends of the gradients of the last finish().
  [[nodiscard]] KeysAndValues<T> addends() const;
  /// Starts to sum the addends over context, to the gradients of this rank's tokens, `own`. The next start_sum(), or finish_sum(), writes
  /// these; finish_sum() must come before start(0) of another pass.
  void start_sum(runtime::DefaultExec const& exec, KeysAndValues<T> const& own);
  void finish_sum(runtime::DefaultExec const& exec);

 private:
  [[nodiscard]] pmm::Panel<T> panel(runtime::Vector<T> const& numbers) const;
  [[nodiscard]] runtime::Vector<T> const& slot(std::int64_t i) const {
    return gathered_[static_cast<std::size_t>(i) % gathered_.size()];
  }

  pmm::ProcessGrid const& grid_;
  pmm::AttentionShape shape_;
  std::int64_t width_;                       // columns of a key and its value
  std::vector<runtime::Vector<T>> gathered_; // by part: of a head, and of the next one
  runtime::Vector<T> to_sum_;                // by part
  runtime::Vector<T> whole_, addends_;       // by token
  runtime::Vector<T> sum_;
  runtime::Request gather_, reduction_;
  std::optional<KeysAndValues<T>> result_of_sum_; // of a sum in progress
};

/// Add the operations of start(), finish(), start_sum() without the sum that it completes, and of the completion of a sum, to `step`. They do
/// nothing unless the plan gathers keys and values.
void plan_start_gather(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_finish_gather(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_start_sum(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_finish_sum(pmm::StepPlan& step, TransformerPlan const& plan);
/// Adds the arrays of a GatheredKeyValues to `step`.
void plan_gathered_key_values(pmm::StepPlan& step, TransformerPlan const& plan);

extern template class GatheredKeyValues<float>;
extern template class GatheredKeyValues<double>;

} // namespace orthant::models
