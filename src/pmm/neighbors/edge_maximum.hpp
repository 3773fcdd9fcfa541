#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The maximum of the rows that a row of a sparse block points to, column by column, and its adjoint:
//
//   P_ic := max_j Y_jc over all edges (i, j)          k_ic := the j it is of          D_jc := sum over i with k_ic = j of dP_ic
//
// Edges in the blocks of other ranks of an axis are included. Of equal numbers that of the smallest id is taken, so the grid does
// not matter. A row without edges has P = 0 and no k. With a NaN among them the maximum is NaN, as in PyTorch, and k its
// column. Y and D are [columns x width], P [rows x width], row-major. Source: GraphSAGE's element-wise maximum (Hamilton, Ying & Leskovec, arXiv 1706.02216, section 3.3) without the layer
// ahead of it; the subgradient follows the maximum.

#include "pmm/edges/edge_block.hpp"
#include "runtime/comm/communicator.hpp"

namespace orthant::pmm {

/// Memory of a maximum. found: [rows x width], of a call; places: [rows x width] k as a column of this block, or -1 if it is in
/// another one or nowhere; it is what the adjoint reads.
template<class T>
struct MaximumMemory {
  Vector<runtime::ValueIndex<T>> found;
  Vector<LocalColumn> places;
};

/// What a rank gets of P: all of it, or what is of columns of its block, and 0 elsewhere. The sum over the axis of the latter is P.
enum class MaximumPart : std::uint8_t { all, of_block };

/// p := `part` of P. column_ids [columns]: no two columns of the axis have the same. Collective over `axis`, whose ranks have other
/// columns of the same rows: one all_reduce of 16 bytes per number. Enqueues on exec; does not fence. Counts a pass. Cost: edges x
/// width comparisons.
template<class T>
void edge_maximum(DefaultExec const& exec, runtime::Communicator const& axis, runtime::PassLedger& passes,
                  EdgeBlock const& block, Vector<std::int64_t> const& column_ids, std::int64_t width,
                  Vector<T> const& y, MaximumMemory<T> const& memory, MaximumPart part, Vector<T> const& p);
/// Lists its call and its pass, not the product.
void plan_edge_maximum(StepPlan& step, AxisSet axis, std::int64_t num_rows, std::int64_t width);

/// D of this rank's edges. No communication. Enqueues on exec; does not fence.
template<class T>
void edge_maximum_backward(DefaultExec const& exec, EdgeBlock const& block, std::int64_t width,
                           Vector<LocalColumn> const& places, Vector<T> const& dp, Vector<T> const& d);

} // namespace orthant::pmm
