// SPDX-License-Identifier: Apache-2.0
#include "pmm/aggregate/aggregate_steps.hpp"

#include "pmm/aggregate/row_lists.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace orthant::pmm {
namespace {

using runtime::sum_of;

using Counts = std::vector<std::int64_t>;

Counts times(Counts counts, std::int64_t factor) {
  for (auto& count : counts)
    count *= factor;
  return counts;
}

std::int64_t sum_before(Counts const& counts, int end) {
  return std::accumulate(counts.begin(), counts.begin() + end, std::int64_t{0});
}

/// `must_run` depends on the slabs of the whole axis and not on the part of one rank, so that it is the same on all ranks.
SlabExchange slab_exchange(GridShape const& shape, Axis axis, Counts const& slab_rows,
                           std::optional<NeededCounts> const& needed, std::int64_t part) {
  SlabExchange exchange;
  exchange.axis = axis;
  exchange.must_run = shape.size(axis) > 1 && sum_of(slab_rows) * part > 0;
  exchange.moves_needed = needed.has_value();
  exchange.of_block = times(needed ? needed->touched : slab_rows, part);
  if (needed) exchange.of_slab = times(needed->asked, part);
  return exchange;
}

/// `over_b` has the numbers of rows of the cells (a, b', c).
OwnRows own_rows(Counts const& over_b, int b, std::int64_t width, std::int64_t part) {
  auto const num_parts = std::ssize(over_b);
  OwnRows own;
  own.num_own = over_b[static_cast<std::size_t>(b)];
  own.num_slab = sum_of(over_b);
  own.must_exchange = num_parts > 1 && own.num_slab * width > 0;
  for (std::int64_t i = 0; i < num_parts; ++i)
    own.columns.push_back(own.num_own * runtime::balanced_range(width, num_parts, i).size());
  own.rows = times(over_b, part);
  return own;
}

} // namespace

std::int64_t SlabExchange::num_of_slab() const {
  return sum_of(of_slab);
}

Range range_of(Counts const& counts, int rank) {
  auto const begin = sum_before(counts, rank);
  return {begin, begin + counts[static_cast<std::size_t>(rank)]};
}

std::int64_t AggregateSteps::num_in_chunk() const {
  return std::ranges::max(sum.of_block);
}

AggregateSteps::AggregateSteps(GridShape const& shape, Coordinates const& coordinates,
                               AggregatePlan const& plan)
    : width(plan.width),
      num_parts(shape.size(plan.roles.b)) {
  auto const& [roles, sizes, needed] = std::tie(plan.roles, plan.sizes, plan.needed);
  auto const b = coordinates.along(roles.b);
  part = runtime::balanced_range(width, num_parts, b).size();

  auto const over_c = slab_exchange(shape, roles.c, sizes.over_c, needed.over_c, part);
  auto const over_a = slab_exchange(shape, roles.a, sizes.over_a, needed.over_a, part);
  auto const num_columns = needed.over_c ? sum_of(needed.over_c->touched) : sizes.num_columns();
  auto const num_rows = needed.over_a ? sum_of(needed.over_a->touched) : sizes.num_rows();
  auto const is_forward = plan.flow == Flow::forward;
  from = own_rows(is_forward ? sizes.over_b : sizes.rows_of_b(), b, width, part);
  to = own_rows(is_forward ? sizes.rows_of_b() : sizes.over_b, b, width, part);
  gather = is_forward ? over_c : over_a;
  sum = is_forward ? over_a : over_c;
  num_inner = is_forward ? num_columns : num_rows;
  num_outer = is_forward ? num_rows : num_columns;
  slab_begin = sum_before(is_forward ? sizes.over_c : sizes.over_a, coordinates.along(gather.axis));

  has_16_bits = plan.operand_format != Wire::native;
  rounds_result = plan.result_format != Wire::native;
  hides_exchange = from.must_exchange && plan.hidden_axes.contains(roles.b);
  sum.in_chunks = sum.must_run && plan.hidden_axes.contains(sum.axis);
  if (sum.in_chunks && !sum.moves_needed) sum.of_slab = Counts(sum.of_block.size(), num_in_slab(to));
  if (gather.must_run && gather.moves_needed) {
    // With 16-bit messages a rank's own rows must be rounded like the others, so they are sent, too. On a device they are always sent: one
    // more copy costs less than one more launch.
    auto const stays = runs_on_host && (has_16_bits || plan.wire == Wire::native);
    auto const rank = coordinates.along(gather.axis);
    auto const num_asked = gather.num_of_slab() / part;
    auto const own = stays ? range_of(gather.of_slab, rank) : Range{};
    auto const add = [&](Range const& asked, bool is_own) {
      if (asked.size() > 0) picked.push_back({asked, is_own});
    };
    add({0, own.begin / part}, false);
    add({own.begin / part, own.end / part}, true);
    add({own.end / part, num_asked}, false);
    if (own.size() > 0) {
      own_part = range_of(gather.of_block, rank);
      gather.of_slab[static_cast<std::size_t>(rank)] = 0;
    }
  }
  // The sum is not rounded here if step 5 sends it in 16 bits, or if the result has 16 bits.
  rounds_sum =
      sum.in_chunks && !sum.moves_needed && num_parts == 1 && plan.wire != Wire::native && !rounds_result;
}

void require_formats(AggregatePlan const& plan, std::int64_t scalar_bytes) {
  ORTHANT_REQUIRE(plan.result_format == Wire::native || plan.result_format == plan.operand_format,
                  "a 16-bit result needs operands in its format");
  ORTHANT_REQUIRE(plan.operand_format == Wire::native || scalar_bytes == sizeof(float),
                  "16-bit operands are summed in fp32, not in ", scalar_bytes, " bytes");
}

void plan_aggregate(StepPlan& step, AggregatePlan const& plan, std::int64_t num_nonzeros) {
  AggregateSteps const steps(step.shape(), step.coordinates(), plan);
  auto const place = [&](Axis axis) { return step.coordinates().along(axis); };
  require_formats(plan, step.scalar_bytes(1));
  auto const operand_wire = steps.has_16_bits ? plan.operand_format : plan.wire;
  using runtime::Operation;
  auto const exchange = [&](Axis axis, Counts const& sent, Wire wire) {
    step.add_call(Operation::all_to_all, axis, step.wire_bytes_leaving(sent, place(axis), wire));
  };
  auto const& [gather, sum] = std::tie(steps.gather, steps.sum);

  auto const copy_columns = [&](std::string_view name, OwnRows const& own, Wire format) {
    auto const bytes_copied = step.wire_bytes(own.num_own * steps.width, format);
    step.add_pass({name, bytes_copied, bytes_copied});
  };

  if (steps.from.must_exchange) {
    copy_columns("split_columns", steps.from, plan.operand_format);
    exchange(plan.roles.b, steps.from.columns, operand_wire);
  }
  if (gather.must_run && gather.moves_needed) {
    for (auto const& rows : steps.picked)
      plan_pick_rows(step, rows.asked.size(), steps.part, plan.operand_format);
    exchange(gather.axis, gather.of_slab, operand_wire);
  } else if (gather.must_run)
    step.add_call(Operation::all_gather, gather.axis, step.wire_bytes(gather.of_block, operand_wire));
  LocalProduct product;
  product.formula = plan.formula;
  product.form = plan.flow == Flow::forward ? Form::product : Form::right_grad;
  product.left = plan.matrix;
  product.is_sparse = true;
  product.operand_format = plan.operand_format;
  product.m = steps.num_outer;
  product.k = steps.num_inner;
  product.n = steps.part;
  product.num_nonzeros = num_nonzeros;
  step.add_product(std::move(product));
  if (sum.in_chunks) {
    auto const num_chunks = step.shape().size(sum.axis);
    auto const first_call = step.num_operations();
    for (int i = 0; i < num_chunks; ++i) // this rank's own chunk costs 0 bytes
      step.add_call(
          Operation::all_to_all, sum.axis,
          i == place(sum.axis) ? 0 : step.wire_bytes(sum.of_block[static_cast<std::size_t>(i)], plan.wire));
    // The first chunk is computed before anything is sent, so its share of the product hides no message.
    step.add_overlap(
        {{first_call, step.num_operations()}, {first_call - 1, first_call}, 1 - 1.0 / num_chunks});
  } else if (sum.must_run && sum.moves_needed)
    exchange(sum.axis, sum.of_block, plan.wire);
  else if (sum.must_run)
    step.add_call(Operation::reduce_scatter, sum.axis, step.wire_bytes(sum.of_block, plan.wire));
  if (sum.must_run && sum.moves_needed)
    plan_add_rows(step, steps.to.num_slab, sum.num_of_slab() / steps.part, steps.part);
  else if (sum.in_chunks)
    step.add_pass(
        {"add_slabs", step.scalar_bytes(sum.num_of_slab()), step.scalar_bytes(steps.num_in_slab(steps.to))});
  if (steps.rounds_sum) step.add_call(Operation::all_to_all, sum.axis, 0);
  if (steps.to.must_exchange) {
    exchange(plan.roles.b, steps.to.rows, steps.rounds_result ? plan.result_format : plan.wire);
    copy_columns("join_columns", steps.to, plan.result_format);
  }
}

} // namespace orthant::pmm
