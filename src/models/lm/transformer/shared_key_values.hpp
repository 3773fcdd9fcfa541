#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Keys and values of a key-value head that several ranks along x share, because x has more ranks than there are key-value heads.
// The columns of the head are split between its r ranks as follows:
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
#include "pmm/gemm/local_gemm.hpp"
#include "pmm/matrix/dist_matrix.hpp"

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

} // namespace orthant::models
