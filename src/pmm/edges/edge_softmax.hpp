#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The softmax of the edges of each row of a matrix whose columns are cut over an axis, for each head, and its adjoint. With the
// sums and maxima over all edges of row i, those in the blocks of other ranks included:
//
//   m_ih := max_j v_ijh      v_ijh := exp(v_ijh - m_ih) / sum_j exp(v_ijh - m_ih)
//   g_ijh := v_ijh (g_ijh - sum_j v_ijh g_ijh)
//
// A row without edges is left alone. Source: Velickovic et al. (arXiv 1710.10903), equations 2 and 3.

#include "pmm/edges/edge_products.hpp"
#include "pmm/product/workspace.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/numbers/random.hpp"

namespace orthant::pmm {

/// Room for maxima and sums. `Work`: a Workspace or a WorkspacePlan, which is used within each call only.
template<class Work>
void reserve_edge_softmax(Work& work, std::int64_t num_rows, std::int64_t num_heads) {
  work.reserve(Slot::left, num_rows * num_heads);
  work.reserve(Slot::right, num_rows * num_heads);
}

/// v := softmax(v), in place; [edges x heads]. Collective over `axis`, whose ranks have other columns of the same rows: one
/// all_reduce of the maxima and one of the sums. Enqueues on exec. Counts a pass.
template<class T>
void edge_softmax(DefaultExec const& exec, runtime::Communicator const& axis, runtime::PassLedger& passes,
                  EdgeBlock const& block, std::int64_t num_heads, Vector<T> const& values,
                  Workspace<T> const& work);
/// g := the adjoint for the coefficients w (edge_products.hpp): from the gradients of w(v) to those of the scores, in place.
/// Collective over `axis`: one all_reduce. Counts a pass.
template<class T>
void edge_softmax_backward(DefaultExec const& exec, runtime::Communicator const& axis,
                           runtime::PassLedger& passes, EdgeBlock const& block, std::int64_t num_heads,
                           EdgeWeights<T> const& weights, Vector<T> const& gradient,
                           Workspace<T> const& work);
/// List them. `axis`: over which columns are cut.
void plan_edge_softmax(StepPlan& step, Axis axis, EdgeCounts const& counts, std::int64_t num_heads);
void plan_edge_softmax_backward(StepPlan& step, Axis axis, EdgeCounts const& counts, std::int64_t num_heads);

/// What dropout of coefficients is keyed by: original ids of the block's rows and columns, and the head.
struct EdgeKeys {
  Vector<std::int64_t> row_ids;    // [rows]
  Vector<std::int64_t> column_ids; // [columns]
  std::int64_t first_head = 0;     // of this rank
  std::int64_t num_heads = 1;      // of all ranks
};

/// v := -v with the given probability, drawn by (id of the row, id of the column, head). Counts a pass.
template<class T>
void drop_edges(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                std::int64_t num_heads, EdgeKeys const& keys, double probability,
                runtime::RandomStream const& stream, Vector<T> const& values);
void plan_drop_edges(StepPlan& step, EdgeCounts const& counts, std::int64_t num_heads);

} // namespace orthant::pmm
