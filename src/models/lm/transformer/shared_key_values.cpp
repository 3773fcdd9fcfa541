// SPDX-License-Identifier: Apache-2.0
#include "models/lm/transformer/shared_key_values.hpp"

#include "runtime/comm/collectives.hpp"

namespace orthant::models {
namespace {

using pmm::Axis, pmm::Panel, runtime::DefaultExec, runtime::Operation, runtime::Vector;

runtime::LocalPass copy_pass(std::int64_t bytes) {
  return {"copy_key_values", bytes, bytes};
}

/// to := from; both must have the same shape.
template<class T>
void copy(DefaultExec const& exec, runtime::PassLedger& passes, Panel<T> const& from, Panel<T> const& to) {
  passes.add(copy_pass(from.num_rows * from.num_columns * std::int64_t{sizeof(T)}));
  pmm::copy_panel(exec, "orthant::models::copy_key_values", from, to);
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
    copy(exec, grid.passes(), last_columns(plan, qkv), key_value_panel(plan, key_values));
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
    copy(exec, grid.passes(), key_value_panel(plan, gradients), last_columns(plan, qkv_gradient));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void broadcast_key_values(DefaultExec const&, pmm::ProcessGrid const&, TransformerPlan const&,    \
                                     pmm::DistMatrix<T> const&, Vector<T> const&);                           \
  template void sum_key_value_gradients(DefaultExec const&, pmm::ProcessGrid const&, TransformerPlan const&, \
                                        Vector<T> const&, pmm::DistMatrix<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
