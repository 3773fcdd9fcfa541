// SPDX-License-Identifier: Apache-2.0
#include "pmm/cost/step_plan.hpp"

#include <algorithm>
#include <utility>

namespace orthant::pmm {

GroupSpan span_of(GridShape const& shape, AxisSet axes) {
  auto stride = 1;
  for (auto const axis : nested_axes) {
    if (axes.contains(axis) && shape.size(axis) > 1) break;
    stride *= shape.size(axis);
  }
  auto const num_ranks = shape.size(axes);
  return {num_ranks, num_ranks == 1 ? 1 : stride};
}

void StepPlan::add(PlannedCall call, std::int64_t result_bytes) {
  if (calls_ != Calls::replayed) operations_.emplace_back(std::move(call));
  if (calls_ == Calls::kept) add_pass(runtime::pass_of_kept(result_bytes));
  if (calls_ == Calls::replayed) add_pass(runtime::pass_of_replayed(result_bytes));
}

void StepPlan::add_call(runtime::Operation operation, AxisSet axes, std::int64_t bytes) {
  add_call(operation, axes, bytes,
           operation == runtime::Operation::reduce_scatter ? bytes / shape_.size(axes) : bytes);
}

void StepPlan::add_call(runtime::Operation operation, AxisSet axes, std::int64_t bytes,
                        std::int64_t result_bytes) {
  auto const size = shape_.size(axes);
  if (size == 1) return;
  auto const sent = runtime::sent_bytes(operation, bytes, rank_within(shape_, coordinates_, axes), size);
  add({operation, name_of(axes), span_of(shape_, axes), bytes, sent}, result_bytes);
}

void StepPlan::add_run_call(runtime::Operation operation, Axis axis, int run_length, std::int64_t bytes) {
  if (run_length == 1) return;
  auto const place = coordinates_.along(axis) % run_length;
  auto const sent = runtime::sent_bytes(operation, bytes, place, run_length);
  GroupSpan const span{run_length, span_of(shape_, axis).stride};
  add({operation, name_of_run(shape_, axis, run_length), span, bytes, sent}, bytes);
}

namespace {

template<class Work>
std::vector<Work> all_of_kind(StepPlan const& step) {
  std::vector<Work> found;
  for (auto const& operation : step.operations())
    if (auto const* const work = std::get_if<Work>(&operation)) found.push_back(*work);
  return found;
}

} // namespace

std::vector<LocalProduct> products_of(StepPlan const& step) {
  return all_of_kind<LocalProduct>(step);
}

std::vector<LocalPass> passes_of(StepPlan const& step) {
  return all_of_kind<LocalPass>(step);
}

std::vector<PlannedCall> calls_of(StepPlan const& step) {
  return all_of_kind<PlannedCall>(step);
}

PlannedBytes bytes_along(StepPlan const& step, std::string_view axis) {
  PlannedBytes sum;
  for (auto const& operation : step.operations()) {
    auto const* const call = std::get_if<PlannedCall>(&operation);
    if (call == nullptr || call->axis != axis) continue;
    sum.counted += call->bytes;
    sum.sent += call->sent_bytes;
  }
  return sum;
}

std::int64_t bytes_of_passes(StepPlan const& step) {
  std::int64_t sum = 0;
  for (auto const& pass : passes_of(step))
    sum += pass.bytes();
  return sum;
}

std::int64_t bytes_held(StepPlan const& step) {
  std::int64_t sum = 0;
  for (auto const& array : step.arrays())
    sum += array.lifetime == Lifetime::operation ? 0 : array.bytes;
  return sum;
}

std::int64_t peak_bytes(StepPlan const& step) {
  std::int64_t held = 0;
  std::int64_t of_operation = 0;
  std::int64_t peak = 0;
  std::int64_t operation = 0;
  for (auto const& array : step.arrays()) {
    if (array.operation != operation) of_operation = 0;
    operation = array.operation;
    (array.lifetime == Lifetime::operation ? of_operation : held) += array.bytes;
    peak = std::max(peak, held + of_operation);
  }
  return peak;
}

} // namespace orthant::pmm
