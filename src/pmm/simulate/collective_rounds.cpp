// SPDX-License-Identifier: Apache-2.0
#include "pmm/simulate/collective_rounds.hpp"

#include <algorithm>
#include <bit>

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

std::string_view name_of(Algorithm algorithm) {
  switch (algorithm) {
  case Algorithm::ring:
    return "ring";
  case Algorithm::halving:
    return "halving";
  case Algorithm::two_level:
    return "two_level";
  case Algorithm::pairwise:
    return "pairwise";
  case Algorithm::tree:
    return "tree";
  }
  return "unknown";
}

std::vector<Algorithm> algorithms_for(Operation operation, int num_ranks, int members_on_node) {
  auto const has_levels =
      members_on_node > 1 && members_on_node < num_ranks && num_ranks % members_on_node == 0;
  std::vector<Algorithm> algorithms;
  switch (operation) {
  case Operation::all_reduce:
    algorithms = {Algorithm::ring, Algorithm::halving};
    break;
  case Operation::all_gather:
  case Operation::reduce_scatter:
    algorithms = {Algorithm::ring};
    if (is_power_of_two(num_ranks)) algorithms.push_back(Algorithm::halving);
    break;
  case Operation::all_to_all:
    return {Algorithm::pairwise};
  default:
    return {Algorithm::tree};
  }
  if (has_levels && (operation == Operation::all_reduce || is_power_of_two(num_ranks / members_on_node)))
    algorithms.push_back(Algorithm::two_level);
  return algorithms;
}

CollectiveRounds::CollectiveRounds(PlannedCall const& call, Algorithm algorithm, int members_on_node)
    : num_ranks_(call.span.num_ranks) {
  auto const bytes = static_cast<double>(call.bytes);
  auto const shrinks = call.operation == Operation::all_reduce || call.operation == Operation::reduce_scatter;
  auto const grows = call.operation == Operation::all_reduce || call.operation == Operation::all_gather;
  switch (algorithm) {
  case Algorithm::ring:
    if (shrinks) add_ring(num_ranks_, bytes);
    if (grows) add_ring(num_ranks_, bytes);
    return;
  case Algorithm::halving:
    add_halving(1, bytes, shrinks, grows);
    return;
  case Algorithm::two_level:
    if (shrinks) add_ring(members_on_node, bytes);
    add_halving(members_on_node, bytes / members_on_node, shrinks, grows);
    if (grows) add_ring(members_on_node, bytes);
    return;
  case Algorithm::pairwise: // the counted bytes are those to all others
    for (int distance = 1; distance < num_ranks_; ++distance)
      rounds_.push_back({Round::Kind::shift, distance, 1, num_ranks_, bytes / (num_ranks_ - 1)});
    return;
  case Algorithm::tree:
    for (int distance = 1; distance < num_ranks_; distance *= 2)
      rounds_.push_back({Round::Kind::grow, distance, 1, num_ranks_, bytes});
    return;
  }
}

void CollectiveRounds::add_ring(int block, double bytes) {
  rounds_.insert(rounds_.end(), at(block - 1), {Round::Kind::shift, 1, 1, block, bytes / block});
}

void CollectiveRounds::add_halving(int unit, double bytes, bool shrinks, bool grows) {
  auto const block = num_ranks_ / unit;
  auto const power = power_of_two_in(block);
  auto const add = [&](Round::Kind kind, int distance, double sent) {
    rounds_.push_back({kind, distance, unit, block, sent});
  };
  if (power < block) add(Round::Kind::fold, power, bytes);
  for (int distance = power / 2; shrinks && distance > 0; distance /= 2)
    add(Round::Kind::exchange, distance, bytes * distance / power);
  for (int distance = 1; grows && distance < power; distance *= 2)
    add(Round::Kind::exchange, distance, bytes * distance / power);
  if (power < block) add(Round::Kind::unfold, power, bytes);
}

std::vector<Message> CollectiveRounds::messages(int round) const {
  auto const& [kind, distance, unit, block, bytes] = rounds_[at(round)];
  std::vector<Message> sent;
  for (int from = 0; from < num_ranks_; ++from) {
    auto const p = from / unit % block;
    auto to = p; // itself: nothing is sent
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

} // namespace orthant::pmm
