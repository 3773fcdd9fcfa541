#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Aggregation H := A F in which each rank owns whole rows of F and H (cells.hpp).
// With n rows of w columns on each rank, of which w_b columns are its part along axis b:
//
//   1 exchange over b   all_to_all               F [n x w]        ->  [n_ac x w_b], the slab
//   2 gather over c                                               ->  F_a [n_a x w_b]
//   3 multiply          P := A[c,a] F_a                           ->  P [m_c x w_b], partial over a
//   4 sum over a        reduce_scatter                            ->  [n_ac x w_b]
//   5 exchange over b   all_to_all                                ->  H [n x w]
//
// A rank sends
//   (G_c - 1) u + (G_a - 1) u + 2 (G_b - 1) / G_b u   words,   u = N w / P,   G_i: ranks of axis i
// No other operation on rows communicates over the three axes.
//
// The adjoint dF := A^T dH runs the same five steps. If the pattern of A is symmetric, Flow::forward runs again with
// the same block and with the scales of rows and columns exchanged. Otherwise Flow::transpose gathers over a and
// sums over c, with the transposed block. Both send the same number of words. Source: derived for Orthant; the idea of
// whole rows between layers comes from hpcgroup/plexus ("hybrid"), which permutes rows where cells.hpp orders them.
//
// Messages may overlap with products (AggregatePlan::hidden_axes). Along the axis of step 4, the rows of one slab
// are multiplied while the previous slab is sent; this rank's own slab comes last. Every rank stores the addends of
// its slab, and adds them in the order of the ranks once all have arrived:
//
//   for i = 1, .., G:   P_i := A[slab (rank + i) mod G, :] F_a, sent to that rank while P_(i+1) is computed
//   H_slab := sum of the received addends in the order of the ranks
//
// So the buffers hold two chunks of P and the addends of one slab, not the whole P. Step 1 may be started ahead of
// a run. Results can differ from a reduce_scatter only by the order of addition, which MPI and NCCL choose. They are equal if only two
// numbers are added, with 16-bit messages, and if only needed rows move.
//
// Steps 2 and 4 may move only the rows that blocks touch (needed_rows.hpp), in exchanges over their axes. On a host,
// step 2 copies a rank's own rows straight into the operand, unless 16-bit messages must round them. Step 4 adds the received rows in the
// order of the ranks. With 16-bit messages each addend is rounded once, including this rank's own one, and the sum is in fp32 until step 5.
//
// F may hold 16-bit numbers. Steps 1 and 2 then send them as they are, whatever the wire, and step 3 widens them in
// registers; P and the sums of step 4 are fp32. H is fp32 or holds 16-bit numbers. A 16-bit H is rounded once, in
// step 3 if nothing is summed over ranks, otherwise after step 4; step 5 sends it as it is:
//
//   |H - A F|  <=  k eps |A| |F| + u |H|, plus the rounding on the wire      u = 2^-8 (bf16), 2^-11 (fp16), eps = 2^-23

#include "pmm/aggregate/aggregate_steps.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/product/workspace.hpp"
#include "pmm/spmm/local_spmm.hpp"
#include "runtime/comm/collectives.hpp"

#include <array>
#include <memory>
#include <vector>

namespace orthant::pmm {

/// Reserves in `work` the buffers that an Aggregate of this plan needs.
void plan_buffers(WorkspacePlan& work, StepPlan const& step, AggregatePlan const& plan);

/// An aggregation, planned at set-up and run every step; a run allocates no array. T is the number type of F: float,
/// double, runtime::Bf16Number or runtime::Fp16Number. The 16-bit types work on the host only; on a device the product
/// throws Error.
template<class T>
class Aggregate {
 public:
  using Sum = runtime::SumOf<T>;

  /// block   [m_c x n_a] for Flow::forward, [n_a x m_c] for Flow::transpose, in the orders of cells.hpp, without the
  ///         rows and columns that `needed` leaves out.
  /// needed  lists of the rows that move, with the counts of plan.needed; null if all rows move.
  /// Throws Error if the extents of `block` or the counts of `needed` differ from the plan, or plan.operand_format is
  /// not the format of T. `grid` must outlive the aggregation. Not collective.
  Aggregate(ProcessGrid const& grid, AggregatePlan const& plan, LocalSpmm<Sum> block,
            std::shared_ptr<Workspace<Sum>> workspace, std::shared_ptr<NeededRows const> needed = nullptr);

  /// to := A from. Both must be [n x w] on this rank, where n may differ between them if the block keeps different
  /// rows and columns. Result must be T or Sum, as plan.result_format says. Otherwise throws Error. `from` and `to` must
  /// not overlap unless axis b or the axis of step 2 has several ranks, because `from` is copied then. Collective over
  /// the three axes of the group: all ranks run aggregations in the same order. Enqueues on exec; on the host the
  /// result is complete on return.
  template<class Result>
  void run(DefaultExec const& exec, DistMatrix<T> const& from, DistMatrix<Result> const& to);

  /// Performs step 1 ahead of run(), which then skips it. If b is one of the hidden axes, the exchange overlaps with
  /// other work; otherwise it is complete on return. `from` must not change and the workspace must not be used until
  /// run(). Collective over axis b; all its ranks call in the same order.
  void prefetch(DefaultExec const& exec, DistMatrix<T> const& from);

 private:
  /// A chunk of step 4 that is being sent. The counts must stay valid until `request` completes.
  struct Chunk {
    std::vector<std::int64_t> sent, received; // [ranks of the axis] elements, all 0 but one
    runtime::Request request;
  };

  template<class Number>
  void require_own(DistMatrix<Number> const& matrix, OwnRows const& own) const;
  [[nodiscard]] Vector<T> operand_of(Vector<T> const& from) const;
  /// The memory in which step 1 leaves the rows of this rank's slab.
  [[nodiscard]] Vector<T> own_slab_of(Vector<T> const& from) const;
  /// Step 2.
  void gather(DefaultExec const& exec, Vector<T> const& own_slab, Vector<T> const& operand);
  /// Steps 3 and 4: returns this rank's slab of the result. summed() forms sums over ranks at once, summed_in_chunks()
  /// slab by slab.
  template<class Result>
  [[nodiscard]] Vector<Result> slab_of(DefaultExec const& exec, Vector<T> const& operand,
                                       Vector<Result> const& to);
  [[nodiscard]] Vector<Sum> summed(DefaultExec const& exec, Vector<T> const& operand, Vector<Sum> const& sum);
  [[nodiscard]] Vector<Sum> summed_in_chunks(DefaultExec const& exec, Vector<T> const& operand,
                                             Vector<Sum> const& sum, Vector<Sum> const& rounded);
  /// Step 5.
  template<class Result>
  void return_columns(DefaultExec const& exec, Vector<Result> const& slab, Vector<Result> const& to);
  template<class Number>
  void multiply(DefaultExec const& exec, Range rows, Vector<T> const& operand, Vector<Number> const& product);
  void send_chunk(DefaultExec const& exec, int step, Vector<T> const& operand, Vector<Sum> const& addends);
  /// The needed rows along `axis`, which must be a or c.
  [[nodiscard]] NeededSlabs const& needed_over(Axis axis) const;

  ProcessGrid const* grid_;
  Roles roles_;
  Wire wire_;
  Wire operand_wire_; // of steps 1 and 2
  AggregateSteps steps_;
  // Message lengths of operands, as message_counts<T>() gives them: sent and received in step 1, sent and received in step 2.
  std::vector<std::int64_t> sent_columns_, received_rows_, of_slab_, of_block_;
  // Message lengths of step 5, for results of type T.
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
