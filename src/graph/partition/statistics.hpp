#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// How A + I falls on the blocks of a grid under each permutation, the distribution of degrees, and what METIS
// would make of the graph: what `orthant partition --stats` prints.

#include "graph/orders/block_counts.hpp"
#include "graph/store/store_format.hpp"
#include "runtime/comm/communicator.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace orthant::graph {

struct PermutationStatistics {
  PermutationKind kind;
  std::array<GridStatistics, 4> grids; // by statistics_grids
  double fresh_share = 1;              // RowReuse
};

struct MetisStatistics {
  std::int64_t num_parts;
  std::int64_t cut;
  std::int64_t volume;
  double balance;
};

struct DegreeStatistics {
  std::int64_t num_isolated = 0;
  std::int64_t median = 0;
  double mean = 0;
  std::int64_t max = 0;
  std::vector<std::int64_t> by_power_of_two; // vertices of degree 0, 1, 2..3, 4..7, ..
};

/// `degrees` of this rank's vertices. Collective.
[[nodiscard]] DegreeStatistics measure_degrees(runtime::Communicator const& comm,
                                               std::span<std::int64_t const> degrees);

struct GraphStatistics {
  DegreeStatistics degrees;
  std::vector<PermutationStatistics> permutations;
  std::vector<MetisStatistics> metis; // empty where the graph is too large for it
};

/// What gathers of sparse products cost in the largest of the 8x8 blocks of `rows`:
///
///   cost  =  largest block / mean block  *  (1 + c * fresh share)
///
/// in units of an even block whose rows are all in a core's cache. c is what a row of 128 numbers from further away costs
/// more: 0.4 from a last-level cache, 2 from memory, which is reckoned with from 2^16 vertices on (32 MiB; a little beyond
/// that it is too much: tests/bench/results/2026-11-25-orders.md).
[[nodiscard]] double gather_cost(PermutationStatistics const& order, std::int64_t num_vertices);

/// The order that fits trainings with the schedule `rows`, of twofold, cluster and pieces: pieces, if on 8x8 blocks owners need
/// so few rows of each other that --gather auto moves only those, and gathers cost at most 10 % more than in the other two.
/// Otherwise twofold, or cluster where its gathers cost at least 5 % less. Only orders that were measured.
[[nodiscard]] PermutationKind choose_order(std::span<PermutationStatistics const> orders,
                                           std::int64_t num_vertices);

/// Tables for people.
[[nodiscard]] std::string format_statistics(GraphStatistics const& statistics, StoreFacts const& facts);

} // namespace orthant::graph
