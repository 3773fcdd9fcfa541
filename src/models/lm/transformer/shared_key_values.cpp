// SPDX-License-Identifier: Apache-2.0
#include "models/lm/transformer/shared_key_values.hpp"

#include "models/lm/transformer/block_memory.hpp"
#include "pmm/attention/sequence_parts.hpp"
#include "pmm/kernels/host_parts.hpp"

#include <string>
#include <utility>

namespace orthant::models {
namespace {

using pmm::Axis, pmm::Panel, runtime::DefaultExec, runtime::Operation, runtime::Vector;

runtime::LocalPass copy_pass(std::int64_t bytes) {
  return {"copy_key_values", bytes, bytes};
}

/// to := from; both must have the same shape.
template<class T>
void copy(DefaultExec const& exec, runtime::PassLedger& passes, KeysAndValues<T> const& from,
          KeysAndValues<T> const& to) {
  passes.add(copy_pass(2 * from.k.num_rows * from.k.num_columns * std::int64_t{sizeof(T)}));
  pmm::copy_panel(exec, "orthant::models::copy_key_values", from.k, to.k);
  pmm::copy_panel(exec, "orthant::models::copy_key_values", from.v, to.v);
}

/// The halves of a matrix with the keys in its first columns.
template<class T>
KeysAndValues<T> halves_of(Panel<T> const& both) {
  auto const width = both.num_columns / 2;
  return {both.columns({0, width}), both.columns({width, 2 * width})};
}

/// Columns of keys and values in `qkv` of the rank that has them.
template<class T>
Panel<T> last_columns(TransformerPlan const& plan, pmm::DistMatrix<T> const& qkv) {
  auto const width = qkv.block().columns.size();
  return Panel<T>(qkv.local()).columns({width - 2 * plan.settings.head_dim(), width});
}

} // namespace

std::int64_t num_shared_numbers(TransformerPlan const& plan) {
  return plan.shares_heads() ? plan.sequences.size() * plan.sequence * 2 * plan.settings.head_dim() : 0;
}

bool holds_key_values(TransformerPlan const& plan, pmm::Block const& qkv) {
  return !plan.shares_heads() || qkv.columns.end % plan.group_width() == 0;
}

void plan_broadcast_key_values(pmm::StepPlan& step, TransformerPlan const& plan) {
  if (!plan.shares_heads()) return;
  auto const bytes = step.scalar_bytes(num_shared_numbers(plan));
  if (holds_key_values(plan, step.block(plan.qkv.output))) step.add_pass(copy_pass(bytes));
  step.add_run_call(Operation::broadcast, Axis::x, plan.ranks_per_group, bytes);
}

void plan_sum_key_value_gradients(pmm::StepPlan& step, TransformerPlan const& plan) {
  if (!plan.shares_heads()) return;
  auto const bytes = step.scalar_bytes(num_shared_numbers(plan));
  step.add_run_call(Operation::all_reduce, Axis::x, plan.ranks_per_group, bytes);
  if (holds_key_values(plan, step.block(plan.qkv.output))) step.add_pass(copy_pass(bytes));
}

template<class T>
void broadcast_key_values(DefaultExec const& exec, pmm::ProcessGrid const& grid, TransformerPlan const& plan,
                          pmm::DistMatrix<T> const& qkv, Vector<T> const& key_values) {
  if (!plan.shares_heads()) return;
  if (holds_key_values(plan, qkv.block()))
    copy(exec, grid.passes(), halves_of(last_columns(plan, qkv)),
         halves_of(key_value_panel(plan, key_values)));
  auto const last = plan.ranks_per_group - 1;
  runtime::broadcast(exec, grid.over_run(Axis::x, plan.ranks_per_group), key_values, last);
}

template<class T>
void sum_key_value_gradients(DefaultExec const& exec, pmm::ProcessGrid const& grid,
                             TransformerPlan const& plan, Vector<T> const& gradients,
                             pmm::DistMatrix<T> const& qkv_gradient) {
  if (!plan.shares_heads()) return;
  runtime::all_reduce(exec, grid.over_run(Axis::x, plan.ranks_per_group), gradients);
  if (holds_key_values(plan, qkv_gradient.block()))
    copy(exec, grid.passes(), halves_of(key_value_panel(plan, gradients)),
         halves_of(last_columns(plan, qkv_gradient)));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void broadcast_key_values(DefaultExec const&, pmm::ProcessGrid const&, TransformerPlan const&,    \
                                     pmm::DistMatrix<T> const&, Vector<T> const&);                           \
  template void sum_key_value_gradients(DefaultExec const&, pmm::ProcessGrid const&, TransformerPlan const&, \
                                        Vector<T> const&, pmm::DistMatrix<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

namespace {

constexpr auto gathered_label = "orthant::models::GatheredKeyValues/gathered";
constexpr auto to_sum_label = "orthant::models::GatheredKeyValues/to_sum";
constexpr auto whole_label = "orthant::models::GatheredKeyValues/whole";
constexpr auto addends_label = "orthant::models::GatheredKeyValues/addends";
constexpr auto sum_label = "orthant::models::GatheredKeyValues/sum";

/// Lengths of the arrays on the rank with this block of queries, keys and values.
struct Lengths {
  Lengths(TransformerPlan const& plan, pmm::Block const& qkv) {
    if (!plan.gathers_key_values()) return;
    auto const shape = shape_of_group(plan);
    own = shape.num_tokens() * 2 * shape.key_columns();
    whole = own * plan.num_parts;
    auto const has_several = groups_of(qkv, plan).size() > 1;
    num_gathered = has_several ? 2 : 1;
    to_sum = has_several ? whole : 0; // otherwise the memory of what was gathered is free
  }
  std::int64_t own = 0, whole = 0, to_sum = 0, num_gathered = 0;
};

/// Numbers of all keys and values of a head.
std::int64_t num_whole_numbers(TransformerPlan const& plan) {
  auto const shape = shape_of_group(plan);
  return shape.num_keys() * 2 * shape.key_columns();
}

} // namespace

pmm::AttentionShape shape_of_group(TransformerPlan const& plan) {
  auto const tokens = plan.exchanges_heads() ? pmm::SequencePart{plan.whole_sequence()} : plan.tokens();
  return {plan.sequences.size(), tokens.length, plan.local_heads_per_group(), 1, plan.settings.head_dim(),
          tokens.num_parts,      tokens.part};
}

void plan_start_gather(pmm::StepPlan& step, TransformerPlan const& plan) {
  if (!plan.gathers_key_values()) return;
  auto const whole = num_whole_numbers(plan);
  step.add_pass(copy_pass(step.scalar_bytes(whole / plan.num_parts)));
  step.add_call(Operation::all_gather, Axis::context, step.scalar_bytes(whole));
}

void plan_finish_gather(pmm::StepPlan& step, TransformerPlan const& plan) {
  auto const shape = shape_of_group(plan);
  if (plan.gathers_key_values()) pmm::plan_order_rows(step, shape, 2 * shape.key_columns());
}

void plan_start_sum(pmm::StepPlan& step, TransformerPlan const& plan) {
  if (!plan.gathers_key_values()) return;
  auto const shape = shape_of_group(plan);
  pmm::plan_order_rows(step, shape, 2 * shape.key_columns());
  step.add_call(Operation::reduce_scatter, Axis::context, step.scalar_bytes(num_whole_numbers(plan)));
}

void plan_finish_sum(pmm::StepPlan& step, TransformerPlan const& plan) {
  if (plan.gathers_key_values())
    step.add_pass(copy_pass(step.scalar_bytes(num_whole_numbers(plan) / plan.num_parts)));
}

void plan_gathered_key_values(pmm::StepPlan& step, TransformerPlan const& plan) {
  Lengths const lengths(plan, step.block(plan.qkv.output));
  for (std::int64_t i = 0; i < lengths.num_gathered; ++i)
    step.add_array(gathered_label, step.scalar_bytes(lengths.whole));
  step.add_array(to_sum_label, step.scalar_bytes(lengths.to_sum));
  step.add_array(whole_label, step.scalar_bytes(lengths.whole));
  step.add_array(addends_label, step.scalar_bytes(lengths.whole));
  step.add_array(sum_label, step.scalar_bytes(lengths.own));
}

template<class T>
GatheredKeyValues<T>::GatheredKeyValues(pmm::ProcessGrid const& grid, TransformerPlan const& plan)
    : grid_(grid),
      shape_(shape_of_group(plan)),
      width_(2 * shape_.key_columns()) {
  Lengths const lengths(plan, block_of(grid, plan.qkv.output));
  auto const make = [](char const* label, std::int64_t length) {
    return Vector<T>(std::string(label), static_cast<std::size_t>(length));
  };
  for (std::int64_t i = 0; i < lengths.num_gathered; ++i)
    gathered_.push_back(make(gathered_label, lengths.whole));
  if (!is_on()) return;
  to_sum_ = lengths.to_sum > 0 ? make(to_sum_label, lengths.to_sum) : gathered_.front();
  whole_ = make(whole_label, lengths.whole);
  addends_ = make(addends_label, lengths.whole);
  sum_ = make(sum_label, lengths.own);
}

template<class T>
Panel<T> GatheredKeyValues<T>::panel(Vector<T> const& numbers) const {
  return pmm::as_matrix(numbers, static_cast<std::int64_t>(numbers.extent(0)) / width_, width_);
}

template<class T>
void GatheredKeyValues<T>::start(DefaultExec const& exec, std::int64_t i, KeysAndValues<T> const& own) {
  auto const& to = slot(i);
  auto const& comm = grid_.over(Axis::context);
  auto const first = comm.rank() * static_cast<std::int64_t>(sum_.extent(0));
  Vector<T> const part(to.data() + first, sum_.extent(0));
  copy(exec, grid_.passes(), own, halves_of(panel(part)));
  if (pmm::can_hide_messages(comm))
    gather_ = runtime::start_all_gather(exec, comm, part, to);
  else
    runtime::all_gather(exec, comm, part, to);
}

template<class T>
KeysAndValues<T> GatheredKeyValues<T>::finish(DefaultExec const& exec, std::int64_t i) {
  gather_.wait();
  pmm::order_by_token(exec, grid_.passes(), shape_, panel(slot(i)), panel(whole_));
  return halves_of(panel(whole_));
}

template<class T>
KeysAndValues<T> GatheredKeyValues<T>::addends() const {
  return halves_of(panel(addends_));
}

template<class T>
void GatheredKeyValues<T>::start_sum(DefaultExec const& exec, KeysAndValues<T> const& own) {
  finish_sum(exec);
  pmm::order_by_part(exec, grid_.passes(), shape_, panel(addends_), panel(to_sum_));
  auto const& comm = grid_.over(Axis::context);
  if (pmm::can_hide_messages(comm))
    reduction_ = runtime::start_reduce_scatter(exec, comm, to_sum_, sum_);
  else
    runtime::reduce_scatter(exec, comm, to_sum_, sum_);
  result_of_sum_ = own;
}

template<class T>
void GatheredKeyValues<T>::finish_sum(DefaultExec const& exec) {
  if (!result_of_sum_) return;
  reduction_.wait();
  copy(exec, grid_.passes(), halves_of(panel(sum_)), *result_of_sum_);
  result_of_sum_.reset();
}

template class GatheredKeyValues<float>;
template class GatheredKeyValues<double>;

} // namespace orthant::models
