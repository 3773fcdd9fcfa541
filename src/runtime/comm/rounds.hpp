#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Algorithms of collectives as lists of rounds. A group has p = N M ranks: M consecutive ones on each of N nodes. Its numbers are cut into
// p parts, one for each rank. In a round, a rank sends parts to one rank and receives parts from another one. The lists are carried
// out (backends/round_backend.cpp), counted by tests, and timed by predictions (pmm/cost/machine.hpp).
//
// An all_gather takes each part from its owner to all ranks, so the messages with a part form a tree. A reduce_scatter is the same list backwards:
// the sums of a part travel to its owner.
//
//   all_gather, reduce_scatter     rounds                    parts that a rank sends
//   ring                           p-1                       p-1
//   recursive                      ceil(log2 p)              p-1
//   two_level                      ceil(log2 N) + M-1        p-1, of which N-1 between nodes
//   all_reduce
//   ring, recursive, two_level     reduce_scatter, then all_gather
//   doubling                       log2 p                    p log2 p
//   nvrar                          log2 N + 2 (M-1)          N log2 N + 2 N (M-1)
//
// In round s of `recursive`, the parts of 2^s ranks move by 2^s ranks: recursive doubling, and without a power of two Bruck's algorithm (1997).
// `doubling` exchanges all numbers with the rank whose number differs in bit s. Without a power of two, the ranks beyond the largest one
// first give their numbers to another rank, and get the result from it at the end: two rounds more.
// `two_level` (PCCL) gathers between the ranks with the same place on their nodes, and then on each node.
// `nvrar` (NVRAR) is a reduce_scatter on each node, `doubling` between the ranks with the same place, and an all_gather on each node.

#include "runtime/observe/ledger.hpp"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace orthant::runtime {

/// `library`: MPI or NCCL as it is; it has no list of rounds.
enum class Algorithm : std::uint8_t { library, ring, recursive, two_level, doubling, nvrar };
inline constexpr std::size_t num_algorithms = 6;

[[nodiscard]] std::string_view name_of(Algorithm algorithm);
/// Null if no algorithm has this name.
[[nodiscard]] std::optional<Algorithm> algorithm_named(std::string_view name);

/// `num_nodes` x `per_node` consecutive ranks.
struct NodeShape {
  int num_nodes = 1;
  int per_node = 1;
  [[nodiscard]] int num_ranks() const { return num_nodes * per_node; }
  friend bool operator==(NodeShape const&, NodeShape const&) = default;
};

/// What one rank sends and receives at a time.
struct Round {
  int to = -1; // -1: this rank sends nothing
  int from = -1;
  std::vector<int> sent;     // parts in the order in which they lie in the message
  std::vector<int> received; // likewise
  bool adds = false;         // what arrives is reduced with what this rank has; otherwise it replaces that
};

/// True if the algorithm carries out this operation. two_level and nvrar need several nodes with several ranks each. An all_to_all has
/// two_level only (backends/round_backend.cpp), without a list.
[[nodiscard]] bool is_possible(Operation operation, Algorithm algorithm, NodeShape shape);

/// The rounds of rank `rank`. Part r of an all_gather or a reduce_scatter belongs to rank r; the parts of an all_reduce are any p parts.
/// Empty for a group of one. Requires is_possible() and a list. Cost: as many numbers as the rank sends
/// and receives parts.
[[nodiscard]] std::vector<Round> rounds_of(Operation operation, Algorithm algorithm, NodeShape shape,
                                           int rank);

} // namespace orthant::runtime
