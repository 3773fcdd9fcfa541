// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/rounds.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <utility>

namespace orthant::runtime {
namespace {

constexpr std::array<std::string_view, num_algorithms> names{"library",   "ring",     "recursive",
                                                             "two-level", "doubling", "nvrar"};

using Rounds = std::vector<Round>;
using Parts = std::vector<int>;

/// Some ranks of the group, one after the other, and the parts that each of them owns.
struct Members {
  int size = 1;
  int own = 0; // place of this rank
  std::function<int(int)> rank_at;
  std::function<void(int, Parts&)> append_parts; // of the member at a place

  [[nodiscard]] int place(int i) const { return (i % size + size) % size; }
  [[nodiscard]] int rank(int i) const { return rank_at(place(i)); }
  /// Parts of `count` members from `first` on.
  [[nodiscard]] Parts parts(int first, int count) const {
    Parts all;
    for (int i = 0; i < count; ++i)
      append_parts(place(first + i), all);
    return all;
  }
};

/// Round s passes on the part that arrived in round s-1.
void gather_by_ring(Members const& members, Rounds& rounds) {
  auto const own = members.own;
  for (int s = 0; s < members.size - 1; ++s)
    rounds.push_back({members.rank(own + 1), members.rank(own - 1), members.parts(own - s, 1),
                      members.parts(own - s - 1, 1)});
}

bool is_power_of_two(int count) {
  return std::has_single_bit(static_cast<unsigned>(count));
}

/// Before round s, a rank has the parts of 2^s ranks. For a power of two, two ranks that differ in bit s exchange what they have; otherwise
/// each rank has the parts of the ranks from itself on, and gets more from the rank 2^s behind them.
void gather_by_recursion(Members const& members, Rounds& rounds) {
  auto const own = members.own;
  for (int distance = 1; distance < members.size; distance *= 2) {
    if (is_power_of_two(members.size)) {
      auto const partner = own ^ distance;
      auto const first_of_block = [&](int i) { return i - i % distance; };
      rounds.push_back({members.rank(partner), members.rank(partner),
                        members.parts(first_of_block(own), distance),
                        members.parts(first_of_block(partner), distance)});
      continue;
    }
    auto const count = std::min(distance, members.size - distance);
    rounds.push_back({members.rank(own - distance), members.rank(own + distance), members.parts(own, count),
                      members.parts(own + distance, count)});
  }
}

/// The same list backwards: what was received is sent to where it came from, and what was sent arrives and is added.
void append_backwards(Rounds const& gather, Rounds& rounds) {
  for (auto round = gather.rbegin(); round != gather.rend(); ++round)
    rounds.push_back({round->from, round->to, round->received, round->sent, true});
}

/// All members end with the reduction of `parts` over the members.
void reduce_by_doubling(Members const& members, Parts const& parts, Rounds& rounds) {
  auto const power = static_cast<int>(std::bit_floor(static_cast<unsigned>(members.size)));
  auto const own = members.own;
  if (own >= power) { // the member `power` before it stands for it
    auto const other = members.rank(own - power);
    rounds.push_back({other, -1, parts, {}});
    rounds.push_back({-1, other, {}, parts});
    return;
  }
  auto const is_for_two = own + power < members.size;
  if (is_for_two) rounds.push_back({-1, members.rank(own + power), {}, parts, true});
  for (int bit = 1; bit < power; bit *= 2) {
    auto const other = members.rank(own ^ bit);
    rounds.push_back({other, other, parts, parts, true});
  }
  if (is_for_two) rounds.push_back({members.rank(own + power), -1, parts, {}});
}

/// The levels of two_level and nvrar for one rank. `part_of` is the part that a rank owns.
struct Levels {
  Members node;    // the ranks of this rank's node; each has the parts of all ranks with its place
  Members between; // the ranks with this rank's place, one per node

  Levels(NodeShape shape, int rank, std::function<int(int)> const& part_of) {
    auto const per_node = shape.per_node;
    auto const own_node = rank / per_node;
    auto const own_place = rank % per_node;
    node = {per_node, own_place, [=](int place) { return own_node * per_node + place; },
            [=](int place, Parts& parts) {
              for (int n = 0; n < shape.num_nodes; ++n)
                parts.push_back(part_of(n * per_node + place));
            }};
    between = {shape.num_nodes, own_node, [=](int n) { return n * per_node + own_place; },
               [=](int n, Parts& parts) { parts.push_back(part_of(n * per_node + own_place)); }};
  }
};

void gather(Algorithm algorithm, NodeShape shape, int rank, std::function<int(int)> const& part_of,
            Rounds& rounds) {
  if (algorithm == Algorithm::two_level) {
    Levels const levels(shape, rank, part_of);
    gather_by_recursion(levels.between, rounds);
    return gather_by_ring(levels.node, rounds);
  }
  Members const all{shape.num_ranks(), rank, std::identity{},
                    [&](int place, Parts& parts) { parts.push_back(part_of(place)); }};
  if (algorithm == Algorithm::ring) return gather_by_ring(all, rounds);
  gather_by_recursion(all, rounds);
}

Rounds rounds_of_nvrar(NodeShape shape, int rank, std::function<int(int)> const& part_of) {
  Levels const levels(shape, rank, part_of);
  Rounds gathered;
  gather_by_ring(levels.node, gathered);
  Rounds rounds;
  append_backwards(gathered, rounds);
  reduce_by_doubling(levels.between, levels.node.parts(levels.node.own, 1), rounds);
  rounds.insert(rounds.end(), gathered.begin(), gathered.end());
  return rounds;
}

} // namespace

std::string_view name_of(Algorithm algorithm) {
  return names[static_cast<std::size_t>(algorithm)];
}

std::optional<Algorithm> algorithm_named(std::string_view name) {
  auto const found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Algorithm>(found - names.begin());
}

bool is_possible(Operation operation, Algorithm algorithm, NodeShape shape) {
  auto const has_levels = shape.num_nodes > 1 && shape.per_node > 1;
  if (operation == Operation::all_to_all) return algorithm == Algorithm::two_level && has_levels;
  auto const is_sum_on_all = operation == Operation::all_reduce;
  if (!is_sum_on_all && operation != Operation::all_gather && operation != Operation::reduce_scatter)
    return false;
  switch (algorithm) {
  case Algorithm::library:
    return false;
  case Algorithm::ring:
  case Algorithm::recursive:
    return true;
  case Algorithm::doubling:
    return is_sum_on_all;
  case Algorithm::two_level:
    return has_levels;
  case Algorithm::nvrar:
    return is_sum_on_all && has_levels;
  }
  return false;
}

std::vector<Round> rounds_of(Operation operation, Algorithm algorithm, NodeShape shape, int rank) {
  ORTHANT_REQUIRE(is_possible(operation, algorithm, shape), name_of(operation), " by ", name_of(algorithm));
  ORTHANT_REQUIRE(operation != Operation::all_to_all, "all_to_all has no list");
  // The parts that move together in an all_reduce on a node shall lie side by side.
  auto const part_of_sum = [=](int r) { return r % shape.per_node * shape.num_nodes + r / shape.per_node; };
  Rounds rounds;
  if (algorithm == Algorithm::nvrar) return rounds_of_nvrar(shape, rank, part_of_sum);
  if (algorithm == Algorithm::doubling) {
    Members const all{shape.num_ranks(), rank, std::identity{},
                      [](int place, Parts& parts) { parts.push_back(place); }};
    reduce_by_doubling(all, all.parts(0, all.size), rounds);
    return rounds;
  }
  if (operation == Operation::all_reduce) {
    Rounds gathered;
    gather(algorithm, shape, rank, part_of_sum, gathered);
    append_backwards(gathered, rounds);
    rounds.insert(rounds.end(), gathered.begin(), gathered.end());
    return rounds;
  }
  Rounds gathered;
  gather(algorithm, shape, rank, std::identity{}, gathered);
  if (operation == Operation::all_gather) return gathered;
  append_backwards(gathered, rounds);
  return rounds;
}

} // namespace orthant::runtime
