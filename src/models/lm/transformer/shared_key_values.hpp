#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Keys and values of a head that several ranks along x share, since there are fewer key-value heads than ranks. The columns of
// the head are cut between its r ranks, but keys and values are whole on the last of them:
//
//   rank 0 .. r - 2     [its query heads]
//   rank r - 1          [its query heads | key | value]
//
//   KV[z,-]     := broadcast of (K, V)                      before attention, on all r ranks
//   dK, dV      := sum over the r ranks of their addends    after it, on the last one
//
// Both go along runs of r ranks of x, so no parameter has copies, and weights lie in the order of any other grid.

#include "models/lm/plan/transformer_plan.hpp"
#include "pmm/gemm/local_gemm.hpp"
#include "pmm/matrix/dist_matrix.hpp"

namespace orthant::models {

/// Numbers of KV on a rank: [tokens x 2 head_dim]; 0 if no head is shared.
[[nodiscard]] std::int64_t num_shared_numbers(TransformerPlan const& plan);
/// Whether this rank's block of queries, keys and values has keys and values.
[[nodiscard]] bool holds_key_values(TransformerPlan const& plan, pmm::Block const& qkv);

/// KV as a matrix: keys in the first half of the columns.
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
/// Last columns of qkv_gradient := the sum of `gradients`, in which it is formed. Collective as above. Enqueues on exec.
template<class T>
void sum_key_value_gradients(runtime::DefaultExec const& exec, pmm::ProcessGrid const& grid,
                             TransformerPlan const& plan, runtime::Vector<T> const& gradients,
                             pmm::DistMatrix<T> const& qkv_gradient);

/// List what they do.
void plan_broadcast_key_values(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_sum_key_value_gradients(pmm::StepPlan& step, TransformerPlan const& plan);

} // namespace orthant::models
