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
// The adjoint dF := A^T dH runs the same five steps. If the pattern of A is symmetric, `same` multiplies by
// the same block, whose row and column scales changed places; else `transpose` gathers over a and sums over
// c, with the transposed block. Both send equally much. Source: derived for Orthant; the idea of whole rows
// between layers is that of hpcgroup/plexus ("hybrid"), which permutes rows where cells.hpp orders them.

#include "pmm/aggregate/cells.hpp"
#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/product/workspace.hpp"
#include "pmm/spmm/local_spmm.hpp"

#include <memory>
#include <optional>

namespace orthant::pmm {

/// Which way rows travel: gathered over c and summed over a, or the other way round.
enum class Flow : std::uint8_t { forward, transpose };

/// The five steps of one rank, without its numbers: what the runner runs and what a list holds.
struct AggregateSteps {
  AggregateSteps(GridShape const& shape, Coordinates const& coordinates, Roles const& roles,
                 CellSizes const& sizes, std::int64_t width, Flow flow);

  [[nodiscard]] std::int64_t num_operand() const; // elements after step 2
  [[nodiscard]] std::int64_t num_partial() const; // elements after step 3

  Axis gather_axis, sum_axis;
  std::int64_t num_own = 0;   // n
  std::int64_t num_slab = 0;  // n_ac
  std::int64_t num_inner = 0; // rows of the operand
  std::int64_t num_outer = 0; // rows of the partial result
  std::int64_t width = 0;     // w
  std::int64_t part = 0;      // w_b
  int num_parts = 1;          // ranks of b
  bool must_exchange = false, must_gather = false, must_sum = false;
  std::int64_t slab_begin = 0;             // row of the operand where the own slab begins
  std::vector<std::int64_t> columns, rows; // [ranks of b] elements that this rank sends in step 1, and gets
  std::vector<std::int64_t> gathered, summed; // [ranks of the axis] elements of each slab in steps 2 and 4
};

/// An aggregation by name, without its block: what a list of a step holds.
struct AggregatePlan {
  std::string formula; // "H = A F"
  Placement matrix;    // A, for whoever reads the list
  Roles roles;
  CellSizes sizes;
  std::int64_t width = 0;
  Flow flow = Flow::forward;
  Wire wire = Wire::native;
};

/// Reserves what a run needs of a workspace, or of the plan of one.
void plan_buffers(WorkspacePlan& work, StepPlan const& step, AggregatePlan const& plan);

/// Lists one run: exchanges, gather, local product with a block of that many non-zeros, sum.
void plan_aggregate(StepPlan& step, AggregatePlan const& plan, std::int64_t num_nonzeros);

/// Planned at set-up and run every step; a run allocates no array.
template<class T>
class Aggregate {
 public:
  /// `block`: [m_c x n_a] for Flow::forward, [n_a x m_c] for Flow::transpose, in the orders of cells.hpp
  /// (Error if its extents are others). `grid` must outlive it. Not collective.
  Aggregate(ProcessGrid const& grid, AggregatePlan const& plan, LocalSpmm<T> block,
            std::shared_ptr<Workspace<T>> workspace);

  /// to := the block's matrix times `from`, both [n x w] on this rank (Error), not overlapping.
  /// Collective over the group's three axes, aggregations in the same order. Enqueues on exec; on the host it
  /// is complete on return.
  void run(DefaultExec const& exec, DistMatrix<T> const& from, DistMatrix<T> const& to);

 private:
  void multiply(DefaultExec const& exec, Vector<T> const& operand, Vector<T> const& partial);

  ProcessGrid const* grid_;
  Roles roles_;
  Wire wire_;
  AggregateSteps steps_;
  LocalSpmm<T> block_;
  std::shared_ptr<Workspace<T>> workspace_;
};

extern template class Aggregate<float>;
extern template class Aggregate<double>;

} // namespace orthant::pmm
