#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// How A + I falls on the blocks of a grid under each permutation, the distribution of degrees, and what METIS
// would make of the graph: what `orthant partition --stats` prints.

#include "graph/partition/block_counts.hpp"
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

/// Tables for people.
[[nodiscard]] std::string format_statistics(GraphStatistics const& statistics, StoreFacts const& facts);

} // namespace orthant::graph
