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

void StepPlan::add_message(runtime::Operation operation, Axis axis, std::int64_t bytes) {
  if (operation == runtime::Operation::receive) bytes = 0;
  GroupSpan const pair{2, span_of(shape_, axis).stride};
  add({operation, std::string(name_of(axis)), pair, bytes, bytes}, bytes);
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

namespace {

/// Visitor that sums the seconds of operations by kind.
class Clock {
 public:
  Clock(StepPlan const& step, Machine const& machine) : step_(step), machine_(machine) {}

  void operator()(LocalProduct const& product) {
    if (product.flops() == 0) return;
    (product.is_sparse ? seconds_.sparse : seconds_.dense) +=
        machine_.launch_seconds + (product.is_sparse ? of_sparse(product) : of_dense(product));
  }
  void operator()(LocalPass const& pass) {
    auto const& each = machine_.passes;
    seconds_.passes +=
        machine_.launch_seconds + of_memory(pass.bytes()) +
        static_cast<double>(pass.random_numbers) * each.random_number +
        static_cast<double>(pass.exponentials) * each.exponential * times_longer() +
        (pass.flops > 0 ? of_attention(pass) : static_cast<double>(pass.row_sums) * each.row_sum);
  }
  void operator()(PlannedCall const& call) {
    seconds_.calls[call.axis] += call_seconds(machine_, call, step_.shape().num_ranks());
  }

  [[nodiscard]] StepSeconds const& seconds() const { return seconds_; }

 private:
  static constexpr std::int64_t bytes_of_table = sizeof(float); // the scalar of measured times and rates

  [[nodiscard]] double of_memory(std::int64_t bytes) const {
    return static_cast<double>(bytes) / machine_.memory.bytes_per_second;
  }
  /// Factor for the scalar of training: 64-bit numbers take twice as long as 32-bit numbers.
  [[nodiscard]] double times_longer() const {
    return static_cast<double>(step_.scalar_bytes(1)) / bytes_of_table;
  }
  [[nodiscard]] double of_flops(std::int64_t flops, Wire format) const {
    auto const rate =
        format != Wire::native ? machine_.dense.of_16_bits : machine_.dense.fp32 / times_longer();
    return static_cast<double>(flops) / rate;
  }
  [[nodiscard]] double of_attention(LocalPass const& pass) const {
    auto const share = machine_.dense.attention > 0 ? machine_.dense.attention / machine_.dense.fp32 : 1;
    return of_flops(pass.flops, Wire::native) / share +
           static_cast<double>(pass.row_sums) * machine_.dense.attention_row_seconds;
  }
  [[nodiscard]] double share_of_rate(std::int64_t shortest_side) const {
    auto const& narrow = machine_.dense.narrow;
    return narrow.points.empty() ? 1 : std::min(1.0, narrow.at(shortest_side));
  }
  /// Seconds of the arithmetic plus those of one pass over operands and result: in measurements on host processors the two hardly
  /// overlap.
  [[nodiscard]] double of_dense(LocalProduct const& product) const {
    auto const numbers = product.m * product.k + product.k * product.n + product.m * product.n;
    return machine_.dense.launch_seconds +
           of_flops(product.flops(), product.operand_format) /
               share_of_rate(std::min({product.m, product.k, product.n})) +
           of_memory(step_.wire_bytes(numbers, product.operand_format));
  }
  /// Rows in other formats cost as much as 32-bit rows with the same number of bytes. Counts one read of the operand and one write of
  /// the result, as for a block with few non-zeros per row.
  [[nodiscard]] double of_sparse(LocalProduct const& product) const {
    auto const row_bytes = step_.wire_bytes(product.n, product.operand_format);
    auto const width = std::max<std::int64_t>(row_bytes / bytes_of_table, 1);
    return static_cast<double>(product.num_nonzeros) * machine_.sparse.per_nonzero.at(width) +
           static_cast<double>(product.m) * machine_.sparse.per_row.at(width) +
           of_memory((product.m + product.k) * row_bytes);
  }

  StepPlan const& step_;
  Machine const& machine_;
  StepSeconds seconds_;
};

/// Seconds of these operations, one after the other.
StepSeconds seconds_within(StepPlan const& step, runtime::Range const& operations, Machine const& machine) {
  Clock clock(step, machine);
  for (auto i = operations.begin; i < operations.end; ++i)
    std::visit(clock, step.operations()[static_cast<std::size_t>(i)]);
  return clock.seconds();
}

} // namespace

double StepSeconds::communication() const {
  auto sum = 0.0;
  for (auto const& [axis, seconds] : calls)
    sum += seconds;
  return sum;
}

std::string StepSeconds::bound() const {
  std::pair<double, std::string> largest{sparse, "sparse products"};
  auto const weigh = [&](double seconds, std::string const& name) {
    if (seconds > largest.first) largest = {seconds, name};
  };
  weigh(dense, "dense products");
  weigh(passes, "passes");
  weigh(waiting, "waiting");
  for (auto const& [axis, seconds] : calls)
    weigh(seconds, axis);
  return largest.second;
}

double seconds_of(PlannedOperation const& operation, StepPlan const& step, Machine const& machine) {
  Clock clock(step, machine);
  std::visit(clock, operation);
  return clock.seconds().total();
}

StepSeconds operator*(StepSeconds const& step, double num_steps) {
  auto product = step;
  for (auto* const term :
       {&product.sparse, &product.dense, &product.passes, &product.hidden, &product.waiting})
    *term *= num_steps;
  for (auto& [axis, seconds] : product.calls)
    seconds *= num_steps;
  return product;
}

AxisSet hidden_axes_on(Machine const& machine, GridShape const& shape) {
  AxisSet axes;
  if (machine.collectives.overlap == 0) return axes;
  for (auto const axis : spatial_axes)
    if (!is_inside_node(machine, span_of(shape, axis), shape.num_ranks())) axes = axes.with(axis);
  return axes;
}

StepSeconds seconds_of(StepPlan const& step, Machine const& machine) {
  auto seconds = seconds_within(step, {0, step.num_operations()}, machine);
  for (auto const& overlap : step.overlaps()) {
    auto const of_calls = seconds_within(step, overlap.calls, machine).communication();
    auto const work = seconds_within(step, overlap.work, machine);
    auto const of_work = work.total() - work.communication();
    seconds.hidden += std::min(of_calls, machine.collectives.overlap * overlap.share * of_work);
  }
  return seconds;
}

} // namespace orthant::pmm
