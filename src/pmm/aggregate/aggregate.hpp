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
// Messages may travel while products are computed (AggregatePlan::hidden_axes). Along the axis of step 4, the
// rows of one slab are multiplied while those of the slab before are sent, this rank's own slab last. Every
// rank keeps the addends of its slab, and adds them in the order of the ranks once all are there:
//
//   for i = 1, .., G:   P_i := A[slab (rank + i) mod G, :] F_a, sent to that rank behind the product of P_(i+1)
//   H_slab := sum over ranks, in order, of what they sent
//
// So two chunks of P and the addends of one slab take the place of P. Step 1 may be started ahead of a run. No
// sum is split: results differ from those of a reduce_scatter by its order of addition alone, which MPI and NCCL
// choose; if only two numbers are added, or on a 16-bit wire, or if only needed rows move, they do not differ.
//
// Steps 2 and 4 may move only the rows that blocks touch (needed_rows.hpp): as exchanges over their axes. A rank picks its own
// rows where the operand wants them; step 4 adds what it receives in the order of the ranks. On a 16-bit wire each addend is rounded once,
// this rank's own one, too, and the sum is in fp32 until step 5.
//
// F may hold 16-bit numbers. Steps 1 and 2 then send them as they are, whatever the wire, and step 3 widens them in
// registers; P and the sums of step 4 are fp32. H is fp32, too, or holds 16-bit numbers: then each sum is rounded once,
// in step 3 if nothing is summed over ranks, else after step 4; step 5 sends it as it is:
//
//   |H - A F|  <=  k eps |A| |F| + u |H|, plus what the wire adds      u = 2^-8 (bf16), 2^-11 (fp16), eps = 2^-23

#include "pmm/aggregate/aggregate_steps.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/product/workspace.hpp"
#include "pmm/spmm/local_spmm.hpp"
#include "runtime/comm/collectives.hpp"

#include <array>
#include <memory>
#include <vector>

namespace orthant::pmm {

/// Reserves what a run needs of the plan of a workspace.
void plan_buffers(WorkspacePlan& work, StepPlan const& step, AggregatePlan const& plan);

/// Planned at set-up and run every step; a run allocates no array. T: of the numbers of F, float, double, or
/// runtime::Bf16Number or runtime::Fp16Number on the host (Error where the product runs on a device).
template<class T>
class Aggregate {
 public:
  using Sum = runtime::SumOf<T>;

  /// `block`: [m_c x n_a] for Flow::forward, [n_a x m_c] for Flow::transpose, in the orders of cells.hpp,
  /// without the rows and columns that `needed` leaves out (Error if its extents are others). `needed`: the
  /// lists of plan.needed (Error if their counts are others); null: all rows move. plan.operand_format is that of
  /// T (Error). `grid` must outlive it. Not collective.
  Aggregate(ProcessGrid const& grid, AggregatePlan const& plan, LocalSpmm<Sum> block,
            std::shared_ptr<Workspace<Sum>> workspace, std::shared_ptr<NeededRows const> needed = nullptr);

  /// to := the block's matrix times `from`, both [n x w] on this rank (Error; a block that keeps other rows
  /// than columns has an n for each), not overlapping unless b or the axis of step 2 has several ranks: F is copied then.
  /// Collective over the group's three axes, aggregations in the same order. Enqueues on exec; on the host it
  /// is complete on return. Result: T or Sum, as plan.result_format says (Error).
  template<class Result>
  void run(DefaultExec const& exec, DistMatrix<T> const& from, DistMatrix<Result> const& to);

  /// Step 1 ahead of run(), which then does not repeat it: under way during other work if b is one of the
  /// hidden axes, else complete on return. Until then `from` must not change, and the workspace is lent.
  /// Collective as run().
  void prefetch(DefaultExec const& exec, DistMatrix<T> const& from);

 private:
  /// A chunk of step 4 on its way.
  struct Chunk {
    std::vector<std::int64_t> sent, received; // [ranks of the axis] elements, all 0 but one; lent to:
    runtime::Request request;
  };

  template<class Number>
  void require_own(DistMatrix<Number> const& matrix, OwnRows const& own) const;
  [[nodiscard]] Vector<T> operand_of(Vector<T> const& from) const;
  /// Where step 1 leaves the rows of this rank's slab.
  [[nodiscard]] Vector<T> own_slab_of(Vector<T> const& from) const;
  /// Step 2. Steps 3 and 4: this rank's slab of the result, and, of sums over ranks, at once or in chunks. Step 5.
  void gather(DefaultExec const& exec, Vector<T> const& own_slab, Vector<T> const& operand);
  template<class Result>
  [[nodiscard]] Vector<Result> slab_of(DefaultExec const& exec, Vector<T> const& operand,
                                       Vector<Result> const& to);
  [[nodiscard]] Vector<Sum> summed(DefaultExec const& exec, Vector<T> const& operand, Vector<Sum> const& sum);
  [[nodiscard]] Vector<Sum> summed_in_chunks(DefaultExec const& exec, Vector<T> const& operand,
                                             Vector<Sum> const& sum, Vector<Sum> const& rounded);
  template<class Result>
  void return_columns(DefaultExec const& exec, Vector<Result> const& slab, Vector<Result> const& to);
  template<class Number>
  void multiply(DefaultExec const& exec, Range rows, Vector<T> const& operand, Vector<Number> const& product);
  void send_chunk(DefaultExec const& exec, int step, Vector<T> const& operand, Vector<Sum> const& addends);
  /// Those of the axis of step 2 or of step 4.
  [[nodiscard]] NeededSlabs const& needed_over(Axis axis) const;

  ProcessGrid const* grid_;
  Roles roles_;
  Wire wire_;
  Wire operand_wire_; // of steps 1 and 2
  AggregateSteps steps_;
  // Lengths of messages with operands: sent and received in step 1; of the own slab, and received, in step 2.
  std::vector<std::int64_t> sent_columns_, received_rows_, of_slab_, of_block_;
  // The same of step 5, for results of T.
  std::vector<std::int64_t> sent_rows_, received_columns_;
  LocalSpmm<Sum> block_;
  std::shared_ptr<Workspace<Sum>> workspace_;
  std::shared_ptr<NeededRows const> needed_;
  bool is_prefetched_ = false;
  runtime::Request exchange_; // of step 1
  std::array<Chunk, 2> chunks_;
};

extern template class Aggregate<float>;
extern template class Aggregate<double>;
extern template class Aggregate<runtime::Bf16Number>;
extern template class Aggregate<runtime::Fp16Number>;

} // namespace orthant::pmm
