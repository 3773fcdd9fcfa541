// SPDX-License-Identifier: Apache-2.0
#include "pmm/cost/machine.hpp"

#include "pmm/cost/collective_rounds.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <utility>

namespace orthant::pmm {

Machine Machine::with_rounded_products() const {
  auto machine = *this;
  if (machine.dense.attention == 0) machine.dense.attention = dense.fp32;
  machine.dense.fp32 = dense.of_16_bits;
  return machine;
}

double WidthTable::at(std::int64_t width) const {
  if (points.empty()) return 0;
  auto const above = std::ranges::lower_bound(points, width, {}, &Point::width);
  auto const ratio = [](std::int64_t a, std::int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  };
  if (above == points.end()) return points.back().value * ratio(width, points.back().width);
  if (above == points.begin()) return above->value;
  auto const& below = *std::prev(above);
  return below.value + ratio(width - below.width, above->width - below.width) * (above->value - below.value);
}

namespace {

/// Distance of two spans: the number of doublings by which their sizes and strides differ.
double distance(GroupSpan const& a, GroupSpan const& b) {
  auto const doublings = [](int first, int second) { return std::abs(std::log2(first) - std::log2(second)); };
  return doublings(a.num_ranks, b.num_ranks) + doublings(a.stride, b.stride);
}

} // namespace

bool is_inside_node(Machine const& machine, GroupSpan const& span, int job_ranks) {
  if (job_ranks <= machine.ranks_per_node) return true;
  return machine.ranks_per_node % (std::int64_t{span.num_ranks} * span.stride) == 0;
}

int num_steps(runtime::Operation operation, int num_ranks) {
  using runtime::Operation;
  auto const doublings = static_cast<int>(std::bit_width(static_cast<unsigned>(num_ranks - 1)));
  switch (operation) {
  case Operation::all_reduce:
    return 2 * std::min(num_ranks - 1, doublings);
  case Operation::all_gather:
  case Operation::reduce_scatter:
    return num_ranks - 1;
  case Operation::receive:
    return 0;
  default:
    return doublings;
  }
}

int members_on_node(Machine const& machine, GroupSpan const& span) {
  return std::clamp(machine.ranks_per_node / span.stride, 1, span.num_ranks);
}

double bytes_per_second(Machine const& machine, GroupSpan const& span, int job_ranks) {
  auto const& collectives = machine.collectives;
  if (is_inside_node(machine, span, job_ranks))
    return std::ranges::min(collectives.inside, {},
                            [&](Machine::GroupSpeed const& speed) { return distance(speed.span, span); })
        .bytes_per_second;
  return collectives.bytes_per_second_between_nodes * members_on_node(machine, span) / machine.ranks_per_node;
}

namespace {

/// Ratio of the bytes that cross the links of a node in this call to those in a ring.
double crossings(Machine const& machine, PlannedCall const& call, int job_ranks) {
  if (call.operation != runtime::Operation::all_to_all || is_inside_node(machine, call.span, job_ranks))
    return 1;
  auto const members = members_on_node(machine, call.span);
  return static_cast<double>(members) * (call.span.num_ranks - members) / (call.span.num_ranks - 1);
}

} // namespace

runtime::NodeShape shape_of(Machine const& machine, GroupSpan const& span, int job_ranks) {
  auto const members = members_on_node(machine, span);
  if (is_inside_node(machine, span, job_ranks) || span.num_ranks % members != 0) return {1, span.num_ranks};
  return {span.num_ranks / members, members};
}

double call_seconds(Machine const& machine, PlannedCall const& call, int job_ranks) {
  if (call.operation == runtime::Operation::receive) return 0; // counted at the sender
  auto const algorithm = chosen_algorithm(machine, call, job_ranks);
  if (algorithm != Algorithm::library) return seconds_alone(machine, call, algorithm, job_ranks);
  return machine.collectives.call_seconds +
         num_steps(call.operation, call.span.num_ranks) * machine.collectives.step_seconds +
         static_cast<double>(call.sent_bytes) * crossings(machine, call, job_ranks) /
             bytes_per_second(machine, call.span, job_ranks);
}

runtime::EmulatedMachine emulation_of(Machine const& machine, std::string name, int job_ranks) {
  runtime::EmulatedMachine emulated;
  emulated.name = std::move(name);
  emulated.ranks_per_node = machine.ranks_per_node;
  emulated.seconds_per_processor_second = machine.seconds_per_processor_second;
  emulated.overlap = machine.collectives.overlap;
  emulated.call_seconds = [machine, job_ranks](runtime::EmulatedCall const& call) {
    // Groups number their ranks in nested order, so the first two are neighbors on the fastest axis.
    GroupSpan const span{static_cast<int>(call.ranks.size()), call.ranks[1] - call.ranks[0]};
    return call_seconds(machine, {call.operation, std::string(call.axis), span, call.bytes, call.sent_bytes},
                        job_ranks);
  };
  return emulated;
}

} // namespace orthant::pmm
