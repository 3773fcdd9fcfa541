#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The aggregation of rows that have one owner: H := A F, F and H in whole rows on their owners (cells.hpp).
// With n own rows of w columns, w_b of which fall to this rank's part of axis b:
//
//   1 exchange over b   columns out, rows in     F [n x w]        ->  [n_ac x w_b]
//   2 gather over c                                               ->  F_a [n_a x w_b]
//   3 multiply          P := A[c,a] F_a                           ->  P [m_c x w_b], partial over a
//   4 sum over a        reduce_scatter                            ->  [n_ac x w_b]
//   5 exchange over b   rows out, columns in                      ->  H [n x w]
//
// A rank sends (G_c - 1) u + (G_a - 1) u + 2 (G_b - 1) / G_b u words, u = N w / P, and three axes serve this
// one operation alone: whatever else is done with rows is local.
//
// The adjoint dF := A^T dH runs the same five steps. If the pattern of A is symmetric, the same block serves:
// Flow::forward again, with the scales of rows and columns exchanged. Otherwise Flow::transpose gathers over a
// and sums over c, with the transposed block. Both send equally much. Source: derived for Orthant; the idea of whole rows
// between layers is that of hpcgroup/plexus ("hybrid"), which permutes rows where cells.hpp orders them.
//
// Steps 2 and 4 may move only the rows that blocks touch (needed_rows.hpp): as exchanges over their axes, of
// which step 4 adds what it receives in the order of the ranks. On a 16-bit wire each addend is rounded once,
// this rank's own one, too, and the sum is in fp32 until step 5.

#include "pmm/aggregate/aggregate_steps.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/product/workspace.hpp"
#include "pmm/spmm/local_spmm.hpp"

#include <memory>

namespace orthant::pmm {

/// Reserves what a run needs of the plan of a workspace.
void plan_buffers(WorkspacePlan& work, StepPlan const& step, AggregatePlan const& plan);

/// Planned at set-up and run every step; a run allocates no array.
template<class T>
class Aggregate {
 public:
  /// `block`: [m_c x n_a] for Flow::forward, [n_a x m_c] for Flow::transpose, in the orders of cells.hpp,
  /// without the rows and columns that `needed` leaves out (Error if its extents are others). `needed`: the
  /// lists of plan.needed (Error if their counts are others); null: all rows move. `grid` must outlive it.
  /// Not collective.
  Aggregate(ProcessGrid const& grid, AggregatePlan const& plan, LocalSpmm<T> block,
            std::shared_ptr<Workspace<T>> workspace, std::shared_ptr<NeededRows const> needed = nullptr);

  /// to := the block's matrix times `from`, both [n x w] on this rank (Error; a block that keeps other rows
  /// than columns has an n for each), not overlapping.
  /// Collective over the group's three axes, aggregations in the same order. Enqueues on exec; on the host it
  /// is complete on return.
  void run(DefaultExec const& exec, DistMatrix<T> const& from, DistMatrix<T> const& to);

 private:
  /// Steps 1 and 2, step 3, and steps 4 and 5.
  [[nodiscard]] Vector<T> gathered(DefaultExec const& exec, Vector<T> const& from);
  void multiply(DefaultExec const& exec, Vector<T> const& operand, Vector<T> const& partial);
  void sum(DefaultExec const& exec, Vector<T> const& partial, Vector<T> const& to);
  /// Those of the axis of step 2 or of step 4.
  [[nodiscard]] NeededSlabs const& needed_over(Axis axis) const;

  ProcessGrid const* grid_;
  Roles roles_;
  Wire wire_;
  AggregateSteps steps_;
  LocalSpmm<T> block_;
  std::shared_ptr<Workspace<T>> workspace_;
  std::shared_ptr<NeededRows const> needed_;
};

extern template class Aggregate<float>;
extern template class Aggregate<double>;

} // namespace orthant::pmm
