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

/// What gathers of sparse products cost on the fullest of 8x8 blocks, by those of balanced blocks whose rows are all in a
/// core's cache: balance * (1 + c * fresh share). c is what a row from further away costs more, of 128 numbers: 0.4 from a
/// last-level cache and 2 from memory, where all rows of the operand take over 32 MiB (tests/bench/results/2026-11-25-orders.md).
[[nodiscard]] double gather_cost(PermutationStatistics const& order, std::int64_t num_vertices);

/// The order for trainings whose schedule may be `rows`: pieces, if on 8x8 blocks owners need so few rows of each other that
/// --gather auto moves only those, and gathers cost at most 10 % more than in any other order. Otherwise, and for pmm3d,
/// twofold, or cluster where its gathers cost at least 5 % less. Only orders that were measured.
[[nodiscard]] PermutationKind choose_order(std::span<PermutationStatistics const> orders,
                                           std::int64_t num_vertices, bool may_use_rows);

/// Tables for people.
[[nodiscard]] std::string format_statistics(GraphStatistics const& statistics, StoreFacts const& facts);

} // namespace orthant::graph
