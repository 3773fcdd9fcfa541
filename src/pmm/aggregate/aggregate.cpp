// SPDX-License-Identifier: Apache-2.0
#include "pmm/aggregate/aggregate.hpp"

#include "pmm/aggregate/column_parts.hpp"
#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <numeric>

namespace orthant::pmm {
namespace {

std::vector<std::int64_t> times(std::vector<std::int64_t> counts, std::int64_t factor) {
  for (auto& count : counts)
    count *= factor;
  return counts;
}

std::int64_t sum_of(std::vector<std::int64_t> const& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

std::int64_t sum_before(std::vector<std::int64_t> const& counts, int end) {
  return std::accumulate(counts.begin(), counts.begin() + end, std::int64_t{0});
}

/// What a rank keeps of an exchange is not sent.
std::int64_t num_leaving(std::vector<std::int64_t> const& counts, int rank) {
  return sum_of(counts) - counts[static_cast<std::size_t>(rank)];
}

} // namespace

AggregateSteps::AggregateSteps(GridShape const& shape, Coordinates const& coordinates, Roles const& roles,
                               CellSizes const& sizes, std::int64_t full_width, Flow flow)
    : gather_axis(flow == Flow::forward ? roles.c : roles.a),
      sum_axis(flow == Flow::forward ? roles.a : roles.c),
      width(full_width),
      num_parts(shape.size(roles.b)) {
  auto const& gathered_rows = flow == Flow::forward ? sizes.over_c : sizes.over_a;
  auto const& summed_rows = flow == Flow::forward ? sizes.over_a : sizes.over_c;
  auto const b = coordinates.along(roles.b);
  num_own = sizes.over_b[static_cast<std::size_t>(b)];
  num_slab = sum_of(sizes.over_b);
  num_inner = sum_of(gathered_rows);
  num_outer = sum_of(summed_rows);
  part = runtime::balanced_range(width, num_parts, b).size();
  slab_begin = sum_before(gathered_rows, coordinates.along(gather_axis));

  // Whether there is anything to send is asked of a whole group, never of one rank's share.
  must_exchange = num_parts > 1 && num_slab * width > 0;
  must_gather = shape.size(gather_axis) > 1 && num_inner * part > 0;
  must_sum = shape.size(sum_axis) > 1 && num_outer * part > 0;
  for (int i = 0; i < num_parts; ++i)
    columns.push_back(num_own * runtime::balanced_range(width, num_parts, i).size());
  rows = times(sizes.over_b, part);
  gathered = times(gathered_rows, part);
  summed = times(summed_rows, part);
}

std::int64_t AggregateSteps::num_operand() const {
  return num_inner * part;
}

std::int64_t AggregateSteps::num_partial() const {
  return num_outer * part;
}

namespace {

/// `Work`: a Workspace or a WorkspacePlan.
template<class Work>
void reserve_buffers(Work& work, AggregateSteps const& steps) {
  auto const own = steps.num_own * steps.width;
  auto const slab = steps.num_slab * steps.part;
  if (steps.must_exchange) work.reserve(Slot::left, std::max(own, slab));
  if (steps.must_exchange || steps.must_gather)
    work.reserve(Slot::right, std::max(steps.must_exchange ? own : 0, steps.num_operand()));
  if (steps.must_exchange || steps.must_sum) work.reserve(Slot::result, steps.num_partial());
}

} // namespace

void plan_buffers(WorkspacePlan& work, StepPlan const& step, AggregatePlan const& plan) {
  reserve_buffers(work, {step.shape(), step.coordinates(), plan.roles, plan.sizes, plan.width, plan.flow});
}

void plan_aggregate(StepPlan& step, AggregatePlan const& plan, std::int64_t num_nonzeros) {
  AggregateSteps const steps(step.shape(), step.coordinates(), plan.roles, plan.sizes, plan.width, plan.flow);
  auto const b = step.coordinates().along(plan.roles.b);
  auto const bytes = [&](std::int64_t count) { return step.wire_bytes(count, plan.wire); };
  using runtime::Operation;
  if (steps.must_exchange)
    step.add_call(Operation::all_to_all, plan.roles.b, bytes(num_leaving(steps.columns, b)));
  if (steps.must_gather) step.add_call(Operation::all_gather, steps.gather_axis, bytes(steps.num_operand()));
  LocalProduct product;
  product.formula = plan.formula;
  product.form = plan.flow == Flow::forward ? Form::product : Form::right_grad;
  product.left = plan.matrix;
  product.is_sparse = true;
  product.m = steps.num_outer;
  product.k = steps.num_inner;
  product.n = steps.part;
  product.num_nonzeros = num_nonzeros;
  step.add_product(std::move(product));
  if (steps.must_sum) step.add_call(Operation::reduce_scatter, steps.sum_axis, bytes(steps.num_partial()));
  if (steps.must_exchange)
    step.add_call(Operation::all_to_all, plan.roles.b, bytes(num_leaving(steps.rows, b)));
}

template<class T>
Aggregate<T>::Aggregate(ProcessGrid const& grid, AggregatePlan const& plan, LocalSpmm<T> block,
                        std::shared_ptr<Workspace<T>> workspace)
    : grid_(&grid),
      roles_(plan.roles),
      wire_(plan.wire),
      steps_(grid.shape(), grid.coordinates(), plan.roles, plan.sizes, plan.width, plan.flow),
      block_(std::move(block)),
      workspace_(std::move(workspace)) {
  auto const& csr = block_.block().csr;
  ORTHANT_REQUIRE(csr.num_rows == steps_.num_outer && csr.num_columns == steps_.num_inner, "a block of ",
                  csr.num_rows, " x ", csr.num_columns, " for ", steps_.num_outer, " x ", steps_.num_inner);
  reserve_buffers(*workspace_, steps_);
}

template<class T>
void Aggregate<T>::multiply(DefaultExec const& exec, Vector<T> const& operand, Vector<T> const& partial) {
  grid_->world().instruments().flops.sparse += 2 * block_.block().csr.num_nonzeros() * steps_.part;
  block_.apply(exec, {0, steps_.num_outer}, as_matrix(operand, steps_.num_inner, steps_.part),
               as_matrix(partial, steps_.num_outer, steps_.part));
}

template<class T>
void Aggregate<T>::run(DefaultExec const& exec, DistMatrix<T> const& from, DistMatrix<T> const& to) {
  auto const& s = steps_;
  auto const require_own = [&](DistMatrix<T> const& matrix) {
    ORTHANT_REQUIRE(matrix.block().rows.size() == s.num_own && matrix.extents().columns == s.width &&
                        matrix.block().columns.size() == s.width,
                    "an aggregation of ", s.num_own, " own rows of ", s.width, " columns, not of ",
                    matrix.placement().to_string());
  };
  require_own(from);
  require_own(to);
  auto const own = s.num_own * s.width;
  auto const slab = s.num_slab * s.part;
  auto const over_b = [&]() -> Communicator const& { return grid_->over(roles_.b); };

  // 1: columns out, rows in, where the gather wants the own slab
  auto operand = from.storage();
  if (s.must_exchange || s.must_gather) operand = workspace_->lend(Slot::right, s.num_operand());
  Vector<T> const own_slab =
      s.must_exchange || s.must_gather
          ? Vector<T>(operand.data() + s.slab_begin * s.part, static_cast<std::size_t>(slab))
          : operand;
  if (s.must_exchange) {
    auto const columns = workspace_->lend(Slot::left, own);
    split_columns(exec, from.storage(), s.num_own, s.width, s.num_parts, columns);
    runtime::all_to_allv(exec, over_b(), columns, s.columns, own_slab, s.rows, wire_);
  }

  // 2: the slabs of all ranks of the axis, one after the other
  if (s.must_gather)
    runtime::all_gatherv(exec, grid_->over(s.gather_axis), s.num_parts > 1 ? own_slab : from.storage(),
                         operand, s.gathered, wire_);

  // 3: P := A[c,a] F_a
  auto const partial =
      s.must_exchange || s.must_sum ? workspace_->lend(Slot::result, s.num_partial()) : to.storage();
  multiply(exec, operand, partial);

  // 4: the sum of this rank's slab over the ranks of the axis
  auto sum = partial;
  if (s.must_sum) {
    sum = s.must_exchange ? workspace_->lend(Slot::left, slab) : to.storage();
    runtime::reduce_scatterv(exec, grid_->over(s.sum_axis), partial, sum, s.summed, runtime::Reduction::sum,
                             wire_);
  }

  // 5: rows out, columns in
  if (s.must_exchange) {
    auto const columns = workspace_->lend(Slot::right, own);
    runtime::all_to_allv(exec, over_b(), sum, s.rows, columns, s.columns, wire_);
    join_columns(exec, columns, s.num_own, s.width, s.num_parts, to.storage());
  }
}

template class Aggregate<float>;
template class Aggregate<double>;

} // namespace orthant::pmm
