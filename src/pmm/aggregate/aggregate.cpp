// SPDX-License-Identifier: Apache-2.0
#include "pmm/aggregate/aggregate.hpp"

#include "pmm/aggregate/column_parts.hpp"
#include "pmm/aggregate/row_lists.hpp"
#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <tuple>

namespace orthant::pmm {
namespace {

/// `Work`: a Workspace or a WorkspacePlan.
template<class Work>
void reserve_buffers(Work& work, AggregateSteps const& steps) {
  auto const& [from, to, gather, sum] = std::tie(steps.from, steps.to, steps.gather, steps.sum);
  if (from.must_exchange) work.reserve(Slot::left, from.num_own * steps.width);
  if (to.must_exchange) {
    work.reserve(Slot::left, steps.num_in_slab(to));
    work.reserve(Slot::right, to.num_own * steps.width);
  }
  if (from.must_exchange || gather.must_run) work.reserve(Slot::right, steps.num_operand());
  if (to.must_exchange || sum.must_run) work.reserve(Slot::result, steps.num_partial());
  if (gather.moves_needed) {
    work.reserve(Slot::left, gather.num_of_slab());
    work.reserve(Slot::result, steps.num_in_slab(from));
  }
  if (sum.moves_needed) work.reserve(Slot::right, sum.num_of_slab());
}

} // namespace

void plan_buffers(WorkspacePlan& work, StepPlan const& step, AggregatePlan const& plan) {
  reserve_buffers(work, {step.shape(), step.coordinates(), plan});
}

template<class T>
Aggregate<T>::Aggregate(ProcessGrid const& grid, AggregatePlan const& plan, LocalSpmm<T> block,
                        std::shared_ptr<Workspace<T>> workspace, std::shared_ptr<NeededRows const> needed)
    : grid_(&grid),
      roles_(plan.roles),
      wire_(plan.wire),
      steps_(grid.shape(), grid.coordinates(), plan),
      block_(std::move(block)),
      workspace_(std::move(workspace)),
      needed_(std::move(needed)) {
  auto const& csr = block_.block().csr;
  ORTHANT_REQUIRE(csr.num_rows == steps_.num_outer && csr.num_columns == steps_.num_inner, "a block of ",
                  csr.num_rows, " x ", csr.num_columns, " for ", steps_.num_outer, " x ", steps_.num_inner);
  ORTHANT_REQUIRE((needed_ ? needed_->counts() : NeededCountsOfAxes{}) == plan.needed,
                  "the plan counts other rows than the lists of needed rows have");
  reserve_buffers(*workspace_, steps_);
}

template<class T>
NeededSlabs const& Aggregate<T>::needed_over(Axis axis) const {
  return axis == roles_.c ? *needed_->over_c : *needed_->over_a;
}

template<class T>
Vector<T> Aggregate<T>::gathered(DefaultExec const& exec, Vector<T> const& from) {
  auto const& s = steps_;
  auto const operand =
      s.from.must_exchange || s.gather.must_run ? workspace_->lend(Slot::right, s.num_operand()) : from;

  // 1: columns out, rows in, to where a gather of whole slabs wants the own one
  auto own_slab = from;
  if (s.num_parts > 1)
    own_slab = s.gather.moves_needed ? workspace_->lend(Slot::result, s.num_in_slab(s.from))
                                     : Vector<T>(operand.data() + s.slab_begin * s.part,
                                                 static_cast<std::size_t>(s.num_in_slab(s.from)));
  if (s.from.must_exchange) {
    auto const columns = workspace_->lend(Slot::left, s.from.num_own * s.width);
    split_columns(exec, from, s.from.num_own, s.width, s.num_parts, columns);
    runtime::all_to_allv(exec, grid_->over(roles_.b), columns, s.from.columns, own_slab, s.from.rows, wire_);
  }
  if (!s.gather.must_run) return operand;

  // 2: the slabs of all ranks of the axis, one after the other, or what the block touches of them
  auto const& over = grid_->over(s.gather.axis);
  if (s.gather.moves_needed) {
    auto const picked = workspace_->lend(Slot::left, s.gather.num_of_slab());
    pick_rows(exec, own_slab, needed_over(s.gather.axis).asked, s.part, picked);
    runtime::all_to_allv(exec, over, picked, s.gather.of_slab, operand, s.gather.of_block, wire_);
  } else {
    runtime::all_gatherv(exec, over, own_slab, operand, s.gather.of_block, wire_);
  }
  return operand;
}

template<class T>
void Aggregate<T>::multiply(DefaultExec const& exec, Vector<T> const& operand, Vector<T> const& partial) {
  grid_->world().instruments().flops.sparse += 2 * block_.block().csr.num_nonzeros() * steps_.part;
  block_.apply(exec, {0, steps_.num_outer}, as_matrix(operand, steps_.num_inner, steps_.part),
               as_matrix(partial, steps_.num_outer, steps_.part));
}

template<class T>
void Aggregate<T>::sum(DefaultExec const& exec, Vector<T> const& partial, Vector<T> const& to) {
  auto const& s = steps_;

  // 4: the sum of this rank's slab over the ranks of the axis
  auto sum = partial;
  if (s.sum.must_run) {
    auto const& over = grid_->over(s.sum.axis);
    sum = s.to.must_exchange ? workspace_->lend(Slot::left, s.num_in_slab(s.to)) : to;
    if (s.sum.moves_needed) {
      auto const& needed = needed_over(s.sum.axis);
      auto const addends = workspace_->lend(Slot::right, s.sum.num_of_slab());
      runtime::all_to_allv(exec, over, partial, s.sum.of_block, addends, s.sum.of_slab, wire_);
      add_rows(exec, addends, needed.addend_offsets, needed.addends, s.part, sum);
    } else {
      runtime::reduce_scatterv(exec, over, partial, sum, s.sum.of_block, runtime::Reduction::sum, wire_);
    }
  }

  // 5: rows out, columns in
  if (s.to.must_exchange) {
    auto const columns = workspace_->lend(Slot::right, s.to.num_own * s.width);
    runtime::all_to_allv(exec, grid_->over(roles_.b), sum, s.to.rows, columns, s.to.columns, wire_);
    join_columns(exec, columns, s.to.num_own, s.width, s.num_parts, to);
  }
}

template<class T>
void Aggregate<T>::run(DefaultExec const& exec, DistMatrix<T> const& from, DistMatrix<T> const& to) {
  auto const& s = steps_;
  auto const require_own = [&](DistMatrix<T> const& matrix, OwnRows const& own) {
    ORTHANT_REQUIRE(matrix.block().rows.size() == own.num_own && matrix.extents().columns == s.width &&
                        matrix.block().columns.size() == s.width,
                    "an aggregation of ", own.num_own, " own rows of ", s.width, " columns, not of ",
                    matrix.placement().to_string());
  };
  require_own(from, s.from);
  require_own(to, s.to);

  auto const operand = gathered(exec, from.storage());
  // 3: P := A[c,a] F_a
  auto const partial =
      s.to.must_exchange || s.sum.must_run ? workspace_->lend(Slot::result, s.num_partial()) : to.storage();
  multiply(exec, operand, partial);
  sum(exec, partial, to.storage());
}

template class Aggregate<float>;
template class Aggregate<double>;

} // namespace orthant::pmm
