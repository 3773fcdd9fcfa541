// SPDX-License-Identifier: Apache-2.0
#include "pmm/aggregate/aggregate.hpp"

#include "pmm/aggregate/cells.hpp"
#include "pmm/aggregate/row_lists.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "pmm/kernels/rounding.hpp"
#include "pmm/matrix/relayout.hpp"
#include "runtime/arrays/views.hpp"

#include <algorithm>
#include <tuple>
#include <type_traits>

namespace orthant::pmm {
namespace {

using runtime::part_of;

/// `Work` is a Workspace or a WorkspacePlan.
template<class Work>
void reserve_buffers(Work& work, AggregateSteps const& steps) {
  auto const& [from, to, gather, sum] = std::tie(steps.from, steps.to, steps.gather, steps.sum);
  auto const holding = [](bool has_16_bits, std::int64_t count) {
    return has_16_bits ? num_holding(count, sizeof(runtime::Bf16Number), sizeof(float)) : count;
  };
  auto const held = [&](std::int64_t count) { return holding(steps.has_16_bits, count); };
  auto const held_result = [&](std::int64_t count) { return holding(steps.rounds_result, count); };
  auto const num_rounded = steps.rounds_result ? held_result(steps.num_in_slab(to)) : 0;
  if (from.must_exchange) work.reserve(Slot::left, held(from.num_own * steps.width));
  if (to.must_exchange) work.reserve(Slot::right, held_result(to.num_own * steps.width));
  if (steps.copies_operand()) work.reserve(Slot::right, held(steps.num_operand()));
  if (gather.moves_needed) {
    work.reserve(Slot::left, held(gather.num_of_slab()));
    if (steps.num_parts > 1) work.reserve(Slot::result, held(steps.num_in_slab(from)));
  }
  if (sum.in_chunks) {
    work.reserve(Slot::left, std::max(sum.num_of_slab(), num_rounded));
    work.reserve(Slot::result, std::max(2 * steps.num_in_chunk(), steps.num_in_slab(to)));
    return;
  }
  if (sum.must_run) {
    if (to.must_exchange || steps.rounds_result) work.reserve(Slot::left, steps.num_in_slab(to));
    work.reserve(Slot::result, std::max(steps.num_partial(), num_rounded));
  } else if (to.must_exchange) {
    work.reserve(Slot::left, steps.num_in_slab(to));
    work.reserve(Slot::result, held_result(steps.num_partial()));
  }
  if (sum.moves_needed) work.reserve(Slot::right, sum.num_of_slab());
}

/// The memory in Slot::right after the operand of step 3. Host kernels may use it for copies of operands.
template<class T, class Sum>
LentMemory room_behind_operand(Workspace<Sum> const& work, AggregateSteps const& steps) {
  auto const num_held = work.num_elements(Slot::right);
  auto const is_there = runs_on_host && steps.copies_operand();
  auto const num_used = is_there ? num_holding(steps.num_operand(), sizeof(T), sizeof(Sum)) : num_held;
  auto const rest = part_of(work.lend(Slot::right, num_held), {num_used, num_held});
  return {rest.data(), rest.extent(0) * sizeof(Sum)};
}

} // namespace

void plan_buffers(WorkspacePlan& work, StepPlan const& step, AggregatePlan const& plan) {
  require_formats(plan, step.scalar_bytes(1));
  reserve_buffers(work, {step.shape(), step.coordinates(), plan});
}

template<class T>
Aggregate<T>::Aggregate(ProcessGrid const& grid, AggregatePlan const& plan, LocalSpmm<Sum> block,
                        std::shared_ptr<Workspace<Sum>> workspace, std::shared_ptr<NeededRows const> needed)
    : grid_(&grid),
      roles_(plan.roles),
      wire_(plan.wire),
      operand_wire_(runtime::is_16_bit<T> ? Wire::native : plan.wire),
      steps_(grid.shape(), grid.coordinates(), plan),
      sent_columns_(message_counts<T>(steps_.from.columns)),
      received_rows_(message_counts<T>(steps_.from.rows)),
      of_slab_(message_counts<T>(steps_.gather.of_slab)),
      of_block_(message_counts<T>(steps_.gather.of_block)),
      sent_rows_(message_counts<T>(steps_.to.rows)),
      received_columns_(message_counts<T>(steps_.to.columns)),
      block_(std::move(block)),
      workspace_(std::move(workspace)),
      needed_(std::move(needed)) {
  auto const& csr = block_.block().csr;
  ORTHANT_REQUIRE(csr.num_rows == steps_.num_outer && csr.num_columns == steps_.num_inner, "a block of ",
                  csr.num_rows, " x ", csr.num_columns, " for ", steps_.num_outer, " x ", steps_.num_inner);
  ORTHANT_REQUIRE((needed_ ? needed_->counts() : NeededCountsOfAxes{}) == plan.needed,
                  "the plan counts other rows than the lists of needed rows have");
  ORTHANT_REQUIRE(plan.operand_format == runtime::format_of<T>,
                  "an aggregation of another format was planned: ", static_cast<int>(plan.operand_format));
  require_formats(plan, sizeof(Sum));
  reserve_buffers(*workspace_, steps_);
}

template<class T>
NeededSlabs const& Aggregate<T>::needed_over(Axis axis) const {
  return axis == roles_.c ? *needed_->over_c : *needed_->over_a;
}

template<class T>
template<class Number>
void Aggregate<T>::require_own(DistMatrix<Number> const& matrix, OwnRows const& own) const {
  ORTHANT_REQUIRE(matrix.block().rows.size() == own.num_own && matrix.extents().columns == steps_.width &&
                      matrix.block().columns.size() == steps_.width,
                  "an aggregation of ", own.num_own, " own rows of ", steps_.width, " columns, not of ",
                  matrix.placement().to_string());
}

template<class T>
Vector<T> Aggregate<T>::operand_of(Vector<T> const& from) const {
  if (!steps_.copies_operand()) return from;
  return workspace_->template lend_as<T>(Slot::right, steps_.num_operand());
}

template<class T>
Vector<T> Aggregate<T>::own_slab_of(Vector<T> const& from) const {
  auto const& s = steps_;
  if (s.num_parts == 1) return from;
  if (s.gather.moves_needed) return workspace_->template lend_as<T>(Slot::result, s.num_in_slab(s.from));
  auto const begin = s.slab_begin * s.part; // where the gather puts it, so that it need not be copied
  return part_of(operand_of(from), {begin, begin + s.num_in_slab(s.from)});
}

template<class T>
void Aggregate<T>::prefetch(DefaultExec const& exec, DistMatrix<T> const& from) {
  auto const& s = steps_;
  require_own(from, s.from);
  ORTHANT_REQUIRE(!is_prefetched_, "an operand is prefetched twice at once");
  is_prefetched_ = true;
  if (!s.from.must_exchange) return;
  // 1: exchange over b: sends parts of the columns of this rank's rows, receives its columns of the slab
  auto const& over = grid_->over(roles_.b);
  auto const columns = workspace_->template lend_as<T>(Slot::left, s.from.num_own * s.width);
  split_columns(exec, grid_->passes(), from.storage(), s.from.num_own, s.width, s.num_parts, columns);
  auto const sent = as_message(columns);
  auto const received = as_message(own_slab_of(from.storage()));
  if (s.hides_exchange)
    exchange_ =
        runtime::start_all_to_allv(exec, over, sent, sent_columns_, received, received_rows_, operand_wire_);
  else
    runtime::all_to_allv(exec, over, sent, sent_columns_, received, received_rows_, operand_wire_);
}

template<class T>
void Aggregate<T>::gather(DefaultExec const& exec, Vector<T> const& own_slab, Vector<T> const& operand) {
  auto const& gather = steps_.gather;
  if (!gather.must_run) return;
  // 2: the slabs of all ranks of the axis, one after the other, or the rows of the slabs that the block touches
  auto const& over = grid_->over(gather.axis);
  auto const received = as_message(operand);
  if (gather.moves_needed) {
    auto const sent = workspace_->template lend_as<T>(Slot::left, gather.num_of_slab());
    auto const& asked = needed_over(gather.axis).asked;
    auto num_sent = std::int64_t{0};
    for (auto const& rows : steps_.picked) {
      auto const count = rows.asked.size() * steps_.part;
      auto const picked = rows.stays ? part_of(operand, steps_.own_part) : part_of(sent, num_sent, count);
      pick_rows(exec, grid_->passes(), own_slab, part_of(asked, rows.asked), steps_.part, picked);
      if (!rows.stays) num_sent += count;
    }
    runtime::all_to_allv(exec, over, as_message(sent), of_slab_, received, of_block_, operand_wire_);
  } else {
    runtime::all_gatherv(exec, over, as_message(own_slab), received, of_block_, operand_wire_);
  }
}

/// product := A[rows,:] F_a. `product` holds only these rows.
template<class T>
template<class Number>
void Aggregate<T>::multiply(DefaultExec const& exec, Range rows, Vector<T> const& operand,
                            Vector<Number> const& product) {
  if (rows.size() == 0) return;
  // apply() indexes its result by the row of the whole block and writes only `rows`. So this View begins
  // rows.begin rows before `product`, and nothing outside of `product` is accessed.
  Matrix<Number> const all_rows(product.data() - rows.begin * steps_.part,
                                static_cast<std::size_t>(steps_.num_outer),
                                static_cast<std::size_t>(steps_.part));
  auto const room = room_behind_operand<T>(*workspace_, steps_);
  block_.apply(exec, rows, as_matrix(operand, steps_.num_inner, steps_.part), all_rows);
}

template<class T>
template<class Result>
Vector<Result> Aggregate<T>::slab_of(DefaultExec const& exec, Vector<T> const& operand,
                                     Vector<Result> const& to) {
  auto const& s = steps_;
  auto const num_in_slab = s.num_in_slab(s.to);
  if (!s.sum.must_run) {
    // 3: H := A[c,a] F_a
    auto const product =
        s.to.must_exchange ? workspace_->template lend_as<Result>(Slot::result, s.num_partial()) : to;
    multiply(exec, {0, s.num_outer}, operand, product);
    return product;
  }
  // The slot for the sum. It is `left` while the partial products occupy `result`, and `result` if they are summed in chunks.
  auto const room = s.sum.in_chunks ? Slot::result : Slot::left;
  auto const sum_of = [&](Vector<Sum> const& sum, Vector<Sum> const& rounded) {
    return s.sum.in_chunks ? summed_in_chunks(exec, operand, sum, rounded) : summed(exec, operand, sum);
  };
  if constexpr (std::is_same_v<Result, Sum>) {
    return sum_of(s.to.must_exchange || s.rounds_sum ? workspace_->lend(room, num_in_slab) : to, to);
  } else {
    auto const sum = sum_of(workspace_->lend(room, num_in_slab), {});
    auto const free = s.sum.in_chunks ? Slot::left : Slot::result; // the addends are no longer needed
    auto const rounded = s.to.must_exchange ? workspace_->template lend_as<Result>(free, num_in_slab)
                                            : part_of(to, {0, num_in_slab});
    round_or_overflow(exec, "orthant::pmm::round_numbers", sum, rounded);
    return rounded;
  }
}

template<class T>
auto Aggregate<T>::summed(DefaultExec const& exec, Vector<T> const& operand, Vector<Sum> const& sum)
    -> Vector<Sum> {
  auto const& s = steps_;
  // 3: P := A[c,a] F_a
  auto const partial = workspace_->lend(Slot::result, s.num_partial());
  multiply(exec, {0, s.num_outer}, operand, partial);

  // 4: the sum of this rank's slab over the ranks of the axis
  auto const& over = grid_->over(s.sum.axis);
  if (s.sum.moves_needed) {
    auto const& needed = needed_over(s.sum.axis);
    auto const addends = workspace_->lend(Slot::right, s.sum.num_of_slab());
    runtime::all_to_allv(exec, over, partial, s.sum.of_block, addends, s.sum.of_slab, wire_);
    add_rows(exec, grid_->passes(), addends, needed.addend_offsets, needed.addends, s.part, sum);
  } else {
    runtime::reduce_scatterv(exec, over, partial, sum, s.sum.of_block, runtime::Reduction::sum, wire_);
  }
  return sum;
}

/// Computes the rows of the slab of rank (own + step) mod G, and starts to send them to that rank. Starts to
/// receive the addend of this rank's slab from rank (own - step) mod G.
template<class T>
void Aggregate<T>::send_chunk(DefaultExec const& exec, int step, Vector<T> const& operand,
                              Vector<Sum> const& addends) {
  auto const& s = steps_;
  auto const& over = grid_->over(s.sum.axis);
  auto const target = (over.rank() + step) % over.size();
  auto const source = (over.rank() - step + over.size()) % over.size();
  auto const rows = range_of(s.sum.of_block, target);
  auto const addend = range_of(s.sum.of_slab, source);

  auto& chunk = chunks_[static_cast<std::size_t>(step % 2)];
  chunk.request.wait(); // the chunk before the last one used the same buffer
  auto const begin = step % 2 * s.num_in_chunk();
  auto const product =
      part_of(workspace_->lend(Slot::result, 2 * s.num_in_chunk()), {begin, begin + rows.size()});
  multiply(exec, {rows.begin / s.part, rows.end / s.part}, operand, product);

  chunk.sent.assign(static_cast<std::size_t>(over.size()), 0);
  chunk.received.assign(static_cast<std::size_t>(over.size()), 0);
  chunk.sent[static_cast<std::size_t>(target)] = rows.size();
  chunk.received[static_cast<std::size_t>(source)] = addend.size();
  chunk.request = runtime::start_all_to_allv(exec, over, product, chunk.sent, part_of(addends, addend),
                                             chunk.received, wire_);
}

/// `sum` shares the memory of the chunks unless it is the result. `rounded` receives the sum if steps_.rounds_sum.
template<class T>
auto Aggregate<T>::summed_in_chunks(DefaultExec const& exec, Vector<T> const& operand, Vector<Sum> const& sum,
                                    Vector<Sum> const& rounded) -> Vector<Sum> {
  auto const& s = steps_;
  auto const& over = grid_->over(s.sum.axis);

  // 3 and 4: a slab is sent while the next one is multiplied. This rank also sends its own slab to itself, as the last one, so that a
  // 16-bit message format rounds it like the others.
  auto const addends = workspace_->lend(Slot::left, s.sum.num_of_slab());
  for (int step = 1; step <= over.size(); ++step)
    send_chunk(exec, step, operand, addends);
  for (auto& chunk : chunks_)
    chunk.request.wait();

  if (s.sum.moves_needed) {
    auto const& needed = needed_over(s.sum.axis);
    add_rows(exec, grid_->passes(), addends, needed.addend_offsets, needed.addends, s.part, sum);
  } else {
    add_slabs(exec, grid_->passes(), addends, over.size(), s.part, sum);
  }
  if (!s.rounds_sum) return sum;
  auto const& own = chunks_[static_cast<std::size_t>(over.size() % 2)].sent; // counts of the last chunk
  runtime::all_to_allv(exec, over, sum, own, rounded, own, wire_);
  return rounded;
}

template<class T>
template<class Result>
void Aggregate<T>::return_columns(DefaultExec const& exec, Vector<Result> const& slab,
                                  Vector<Result> const& to) {
  auto const& s = steps_;
  if (!s.to.must_exchange) return;
  // 5: exchange over b: sends rows of the slab to their owners, receives all columns of this rank's rows
  auto const& over = grid_->over(roles_.b);
  auto const columns = workspace_->template lend_as<Result>(Slot::right, s.to.num_own * s.width);
  if constexpr (runtime::is_16_bit<Result>)
    runtime::all_to_allv(exec, over, as_message(slab), sent_rows_, as_message(columns), received_columns_,
                         Wire::native);
  else
    runtime::all_to_allv(exec, over, slab, s.to.rows, columns, s.to.columns, wire_);
  join_columns(exec, grid_->passes(), columns, s.to.num_own, s.width, s.num_parts, to);
}

template<class T>
template<class Result>
void Aggregate<T>::run(DefaultExec const& exec, DistMatrix<T> const& from, DistMatrix<Result> const& to) {
  require_own(from, steps_.from);
  require_own(to, steps_.to);
  ORTHANT_REQUIRE(steps_.rounds_result == runtime::is_16_bit<Result>,
                  "a result in another format was planned");
  if (!is_prefetched_) prefetch(exec, from);
  exchange_.wait();
  is_prefetched_ = false;
  auto const operand = operand_of(from.storage());
  gather(exec, own_slab_of(from.storage()), operand);
  grid_->world().instruments().flops.sparse += 2 * block_.block().csr.num_nonzeros() * steps_.part;
  return_columns(exec, slab_of(exec, operand, to.storage()), to.storage());
}

#define ORTHANT_INSTANTIATE(T, Result)                                                                       \
  template void Aggregate<T>::run(DefaultExec const&, DistMatrix<T> const&, DistMatrix<Result> const&);
template class Aggregate<float>;
template class Aggregate<double>;
template class Aggregate<runtime::Bf16Number>;
template class Aggregate<runtime::Fp16Number>;
ORTHANT_INSTANTIATE(float, float)
ORTHANT_INSTANTIATE(double, double)
ORTHANT_INSTANTIATE(runtime::Bf16Number, float)
ORTHANT_INSTANTIATE(runtime::Fp16Number, float)
ORTHANT_INSTANTIATE(runtime::Bf16Number, runtime::Bf16Number)
ORTHANT_INSTANTIATE(runtime::Fp16Number, runtime::Fp16Number)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm
