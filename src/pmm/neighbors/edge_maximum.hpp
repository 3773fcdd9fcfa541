#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Elementwise maximum over the neighbors of each row of a sparse block, and its adjoint:
//
//   P_ic := max_j Y_jc over all edges (i, j)
//   k_ic := the j of the maximum
//   D_jc := sum of dP_ic over i with k_ic = j
//
// Edges in the blocks of other ranks of an axis are included. Of equal values, the one with the smallest id is taken, so the
// result does not depend on the grid. A row without edges has P = 0 and no k. If a value is NaN, the maximum is NaN, as in
// PyTorch, and k is its column. Y and D are [columns x width], P [rows x width], row-major. Source: the max-pooling aggregator of
// GraphSAGE (Hamilton, Ying & Leskovec, arXiv 1706.02216, section 3.3) without the dense layer in front of it.

#include "pmm/edges/edge_block.hpp"
#include "runtime/comm/communicator.hpp"

namespace orthant::pmm {

/// Memory of a maximum, [rows x width] each. `found` is used only within edge_maximum(). `places` has k as a column of this
/// block, or -1 if the maximum is in another block or the row has no edges; the adjoint reads it.
template<class T>
struct MaximumMemory {
  Vector<runtime::ValueIndex<T>> found;
  Vector<LocalColumn> places;
};

/// Elements of P that a rank gets: all, or only the maxima that are in columns of its block, with 0 elsewhere (of_block). The sum
/// of the of_block parts over the axis is P.
enum class MaximumPart : std::uint8_t { all, of_block };

/// p := `part` of P. `kept` [edges]: edges whose number is 0 are left out; empty: no edge is left out. column_ids [columns] must be unique
/// over the ranks of `axis`, which have different columns of the same rows.
/// Collective over `axis`: one all_reduce of 16 bytes per element. Enqueues on exec; does not fence. Adds one pass to `passes`.
/// Cost: edges x width comparisons.
template<class T>
void edge_maximum(DefaultExec const& exec, runtime::Communicator const& axis, runtime::PassLedger& passes,
                  EdgeBlock const& block, Vector<std::int64_t> const& column_ids, std::int64_t width,
                  Vector<T> const& y, MaximumMemory<T> const& memory, MaximumPart part, Vector<T> const& p,
                  Vector<T> const& kept = {});
/// Adds the all_reduce and the pass of edge_maximum() to `step`, without the comparisons.
void plan_edge_maximum(StepPlan& step, AxisSet axis, std::int64_t num_rows, std::int64_t width);

/// d := D over this rank's edges. Not collective. Enqueues on exec; does not fence.
template<class T>
void edge_maximum_backward(DefaultExec const& exec, EdgeBlock const& block, std::int64_t width,
                           Vector<LocalColumn> const& places, Vector<T> const& dp, Vector<T> const& d);

} // namespace orthant::pmm
