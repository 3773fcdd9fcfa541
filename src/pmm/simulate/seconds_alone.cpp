// SPDX-License-Identifier: Apache-2.0
#include "pmm/simulate/simulated_step.hpp"

#include <algorithm>

namespace orthant::pmm {
namespace {

/// Bytes by the slowest link of a round, of a group whose first member is rank 0.
double transfer_seconds(Machine const& machine, PlannedCall const& call, std::vector<Message> const& messages,
                        int job_ranks) {
  auto const& span = call.span;
  auto const ranks_on_node = std::min(machine.ranks_per_node, job_ranks);
  auto const members = members_on_node(machine, span);
  auto const node_of = [&](int place) { return place * span.stride / machine.ranks_per_node; };
  std::map<int, int> sent_by, received_by; // node: messages of one group
  auto slowest = 0.0;
  auto most = 0.0;
  for (auto const& [from, to, bytes] : messages) {
    if (node_of(from) == node_of(to)) {
      slowest = std::max(slowest, bytes / bytes_per_second(machine, {members, span.stride}, ranks_on_node));
      continue;
    }
    most = std::max(most, bytes);
    ++sent_by[node_of(from)];
    ++received_by[node_of(to)];
  }
  auto busiest = 0;
  for (auto const& counts : {sent_by, received_by})
    for (auto const& [node, count] : counts)
      busiest = std::max(busiest, count);
  auto const groups_on_node = ranks_on_node / members;
  return std::max(slowest,
                  most * busiest * groups_on_node / machine.collectives.bytes_per_second_between_nodes);
}

} // namespace

double seconds_alone(Machine const& machine, PlannedCall const& call, Algorithm algorithm, int job_ranks) {
  CollectiveRounds const rounds(call, algorithm, members_on_node(machine, call.span));
  auto seconds = machine.collectives.call_seconds;
  auto transfer = 0.0;
  for (int round = 0; round < rounds.size(); ++round) {
    if (!rounds.repeats(round)) transfer = transfer_seconds(machine, call, rounds.messages(round), job_ranks);
    seconds += machine.collectives.step_seconds + transfer;
  }
  return seconds;
}

Algorithm fastest_algorithm(Machine const& machine, PlannedCall const& call, int job_ranks) {
  auto const all = algorithms_for(call.operation, call.span.num_ranks, members_on_node(machine, call.span));
  return std::ranges::min(
      all, {}, [&](Algorithm algorithm) { return seconds_alone(machine, call, algorithm, job_ranks); });
}

} // namespace orthant::pmm
