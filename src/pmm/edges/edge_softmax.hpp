#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Softmax over the edges of each row and head of a matrix whose columns are partitioned over an axis, its adjoint, and dropout of
// coefficients. Sums and maxima run over all edges of row i, also the edges in blocks of other ranks:
//
//   m_ih := max_j v_ijh      v_ijh := exp(v_ijh - m_ih) / sum_j exp(v_ijh - m_ih)
//   g_ijh := v_ijh (g_ijh - sum_j v_ijh g_ijh)
//
// A row without edges has no coefficients. Source: Velickovic et al. (arXiv 1710.10903), equations 2 and 3.

#include "pmm/edges/edge_products.hpp"
#include "pmm/product/workspace.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/numbers/random.hpp"

#include <limits>

namespace orthant::pmm {

/// Reserves buffers for maxima and sums. `Work` is a Workspace or a WorkspacePlan; its buffers are used only within each call.
template<class Work>
void reserve_edge_softmax(Work& work, std::int64_t num_rows, std::int64_t num_heads) {
  work.reserve(Slot::left, num_rows * num_heads);
  work.reserve(Slot::right, num_rows * num_heads);
}

/// v := softmax(v), in place; [edges x heads]. Collective over `axis`, whose ranks have different columns of the same rows: one
/// all_reduce of the maxima and one of the sums. Enqueues on exec. Adds one pass to `passes`.
template<class T>
void edge_softmax(DefaultExec const& exec, runtime::Communicator const& axis, runtime::PassLedger& passes,
                  EdgeBlock const& block, std::int64_t num_heads, Vector<T> const& values,
                  Workspace<T> const& work);
/// Turns the gradients of w(v) (edge_products.hpp) into the gradients of the scores, in place in `gradient`. Collective over
/// `axis`: one all_reduce. Enqueues on exec. Adds one pass to `passes`.
template<class T>
void edge_softmax_backward(DefaultExec const& exec, runtime::Communicator const& axis,
                           runtime::PassLedger& passes, EdgeBlock const& block, std::int64_t num_heads,
                           EdgeWeights<T> const& weights, Vector<T> const& gradient,
                           Workspace<T> const& work);
/// Add the softmax, or its adjoint, to `step`. The columns are partitioned over `axis`.
void plan_edge_softmax(StepPlan& step, Axis axis, EdgeCounts const& counts, std::int64_t num_heads);
void plan_edge_softmax_backward(StepPlan& step, Axis axis, EdgeCounts const& counts, std::int64_t num_heads);

/// Replaces the values of dropped edges: v := `fill` for all heads of an edge whose number in `kept` [edges] is 0. With edges that are
/// dropped, call it before edge_softmax() with `lowest_score`, and afterwards with 0, because a row may have no edge left. Enqueues on
/// exec; does not fence. Adds one pass to `passes`.
template<class T>
void fill_dropped(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                  std::int64_t num_heads, Vector<T> const& kept, T fill, Vector<T> const& values);
void plan_fill_dropped(StepPlan& step, EdgeCounts const& counts, std::int64_t num_heads);
/// A score so low that its coefficient is 0 if the row has any other score. It is finite, so that the softmax of a row with only such
/// scores is finite.
template<class T>
inline constexpr T lowest_score = std::numeric_limits<T>::lowest() / 2;

/// Keys of the random draws of dropout: original ids of the block's rows and columns, and the head.
struct EdgeKeys {
  Vector<std::int64_t> row_ids;    // [rows]
  Vector<std::int64_t> column_ids; // [columns]
  std::int64_t first_head = 0;     // first head of this rank
  std::int64_t num_heads = 1;      // heads of all ranks together
};

/// v := -v with the given probability. Draws are keyed by (id of the row, id of the column, head). Enqueues on exec; does not
/// fence. Adds one pass to `passes`.
template<class T>
void drop_edges(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                std::int64_t num_heads, EdgeKeys const& keys, double probability,
                runtime::RandomStream const& stream, Vector<T> const& values);
void plan_drop_edges(StepPlan& step, EdgeCounts const& counts, std::int64_t num_heads);

} // namespace orthant::pmm
