// SPDX-License-Identifier: Apache-2.0
#include "pmm/cost/collective_rounds.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

namespace orthant::pmm {
namespace {

using runtime::Operation;

int power_of_two_in(int count) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(count)));
}

bool is_power_of_two(int count) {
  return power_of_two_in(count) == count;
}

} // namespace

std::vector<Algorithm> algorithms_for(Operation operation, int num_ranks, int members_on_node) {
  if (!runtime::is_possible(operation, Algorithm::ring, {1, num_ranks})) return {Algorithm::library};
  std::vector<Algorithm> algorithms{Algorithm::ring, Algorithm::recursive};
  if (members_on_node > 1 && members_on_node < num_ranks && num_ranks % members_on_node == 0)
    algorithms.push_back(Algorithm::two_level);
  return algorithms;
}

CollectiveRounds::CollectiveRounds(PlannedCall const& call, Algorithm algorithm, int members_on_node)
    : num_ranks_(call.span.num_ranks) {
  auto const bytes = static_cast<double>(call.bytes);
  auto const shrinks = call.operation == Operation::all_reduce || call.operation == Operation::reduce_scatter;
  auto const grows = call.operation == Operation::all_reduce || call.operation == Operation::all_gather;
  if (call.operation == Operation::all_to_all) {
    add_all_to_all(algorithm == Algorithm::two_level ? members_on_node : 1, bytes);
  } else if (algorithm == Algorithm::library) {
    for (int distance = 1; distance < num_ranks_; distance *= 2)
      rounds_.push_back({Round::Kind::grow, distance, 1, num_ranks_, bytes});
  } else {
    // What happens on a node before and after the messages between nodes; nodes of one member for the algorithms without levels.
    auto const has_levels = algorithm == Algorithm::two_level || algorithm == Algorithm::nvrar;
    auto const on_node = algorithm == Algorithm::ring ? num_ranks_ : has_levels ? members_on_node : 1;
    auto const doubles = algorithm == Algorithm::doubling || algorithm == Algorithm::nvrar;
    if (shrinks) add_ring(on_node, on_node - 1, bytes);
    if (doubles)
      add_doubling(on_node, bytes / on_node);
    else
      add_recursion(on_node, bytes / on_node, shrinks, grows);
    if (grows) add_ring(on_node, 1, bytes);
  }
}

/// `bytes`: to all other members together.
void CollectiveRounds::add_all_to_all(int unit, double bytes) {
  auto const part = bytes / (num_ranks_ - 1);
  auto const num_units = num_ranks_ / unit;
  for (int distance = 1; distance < unit; ++distance)
    rounds_.push_back({Round::Kind::shift, distance, 1, unit, part * num_units});
  for (int distance = 1; distance < num_units; ++distance)
    rounds_.push_back({Round::Kind::shift, distance, unit, num_units, part * unit});
}

/// `distance`: 1, or block-1 for a ring backwards.
void CollectiveRounds::add_ring(int block, int distance, double bytes) {
  rounds_.insert(rounds_.end(), at(block - 1), {Round::Kind::shift, distance, 1, block, bytes / block});
}

void CollectiveRounds::add_recursion(int unit, double bytes, bool shrinks, bool grows) {
  auto const block = num_ranks_ / unit;
  auto const add = [&](int distance, bool goes_up) {
    auto const sent = bytes * std::min(distance, block - distance) / block;
    if (is_power_of_two(block))
      rounds_.push_back({Round::Kind::exchange, distance, unit, block, sent});
    else
      rounds_.push_back({Round::Kind::shift, goes_up ? distance : block - distance, unit, block, sent});
  };
  for (int distance = power_of_two_in(block - 1); shrinks && distance > 0; distance /= 2)
    add(distance, true);
  for (int distance = 1; grows && distance < block; distance *= 2)
    add(distance, false);
}

void CollectiveRounds::add_doubling(int unit, double bytes) {
  auto const block = num_ranks_ / unit;
  auto const power = power_of_two_in(block);
  if (power < block) rounds_.push_back({Round::Kind::fold, power, unit, block, bytes});
  for (int distance = 1; distance < power; distance *= 2)
    rounds_.push_back({Round::Kind::exchange, distance, unit, block, bytes});
  if (power < block) rounds_.push_back({Round::Kind::unfold, power, unit, block, bytes});
}

std::vector<Message> CollectiveRounds::messages(int round) const {
  auto const& [kind, distance, unit, block, bytes] = rounds_[at(round)];
  std::vector<Message> sent;
  for (int from = 0; from < num_ranks_; ++from) {
    auto const p = from / unit % block;
    auto to = p; // stays p if the member sends nothing
    switch (kind) {
    case Round::Kind::shift:
      to = (p + distance) % block;
      break;
    case Round::Kind::exchange:
      if (p < power_of_two_in(block)) to = p ^ distance;
      break;
    case Round::Kind::fold:
      if (p >= distance) to = p - distance;
      break;
    case Round::Kind::unfold:
    case Round::Kind::grow:
      if (p < distance && p + distance < block) to = p + distance;
      break;
    }
    if (to != p) sent.push_back({from, from + (to - p) * unit, bytes});
  }
  return sent;
}

namespace {

/// Seconds of one round on its slowest link, for a group whose first member is rank 0.
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

Algorithm chosen_algorithm(Machine const& machine, PlannedCall const& call, int job_ranks) {
  auto const bytes = call.operation == Operation::all_to_all ? 0 : call.bytes;
  return machine.collectives.algorithms.of(call.operation, call.axis, shape_of(machine, call.span, job_ranks),
                                           bytes);
}

Algorithm fastest_algorithm(Machine const& machine, PlannedCall const& call, int job_ranks) {
  auto const all = algorithms_for(call.operation, call.span.num_ranks, members_on_node(machine, call.span));
  return std::ranges::min(
      all, {}, [&](Algorithm algorithm) { return seconds_alone(machine, call, algorithm, job_ranks); });
}

namespace {

/// 16 sizes per doubling.
std::int64_t rounded_size(std::int64_t bytes) {
  constexpr int num_kept_bits = 5;
  auto const num_dropped =
      std::max(0, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(bytes))) - num_kept_bits);
  return bytes >> num_dropped << num_dropped;
}

Algorithm predicted_algorithm(Machine const& machine, Operation operation, runtime::NodeShape shape,
                              std::int64_t bytes) {
  auto const num_ranks = shape.num_ranks();
  auto const job_ranks = shape.num_nodes * machine.ranks_per_node; // a job fills its nodes
  GroupSpan const span{num_ranks, std::max(1, machine.ranks_per_node / shape.per_node)};
  if (bytes == 0 || shape_of(machine, span, job_ranks) != shape) return Algorithm::library;
  PlannedCall const call{operation, {}, span, bytes, runtime::sent_bytes(operation, bytes, 0, num_ranks)};
  // The formula for the library is optimistic: it combines the few rounds of one algorithm with the few bytes of another. An algorithm that is
  // predicted to be at most 5 % slower is therefore preferred to it.
  constexpr double nearly = 1.05;
  auto best = Algorithm::library;
  auto least = nearly * call_seconds(machine, call, job_ranks);
  for (std::size_t i = 0; i < runtime::num_algorithms; ++i) {
    auto const algorithm = static_cast<Algorithm>(i);
    if (!runtime::is_possible(operation, algorithm, shape)) continue;
    auto const seconds = seconds_alone(machine, call, algorithm, job_ranks);
    if (seconds < least) {
      least = seconds;
      best = algorithm;
    }
  }
  return best;
}

} // namespace

std::function<Algorithm(Operation, runtime::NodeShape, std::int64_t)> predicted_algorithms(Machine machine) {
  machine.collectives.algorithms = {}; // the library's calls are compared with the others
  using Key = std::tuple<Operation, int, int, std::int64_t>;
  struct Known {
    std::mutex mutex; // threads that prepare batches call, too
    std::map<Key, Algorithm> choices;
  };
  auto const known = std::make_shared<Known>();
  return [known, machine = std::move(machine)](Operation operation, runtime::NodeShape shape,
                                               std::int64_t bytes) {
    auto const size = rounded_size(bytes);
    std::lock_guard const lock(known->mutex);
    auto const [entry, is_new] =
        known->choices.try_emplace({operation, shape.num_nodes, shape.per_node, size});
    if (is_new) entry->second = predicted_algorithm(machine, operation, shape, size);
    return entry->second;
  };
}

} // namespace orthant::pmm
