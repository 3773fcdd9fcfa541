#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Predicts the cost of an epoch of full-graph training on every grid with a given number of ranks, without their processes: sums
// over the list of a step (pmm/cost/step_plan.hpp) of the rank that sends and holds most.
//
// This rank is rank 0. Balanced parts at lower coordinates are at least as large as others, and so are blocks: their rows, their
// columns and pieces of a flat shard. The bytes of a collective are proportional to a block that its group shares, and the first ranks
// of the group get the remainder. There are two exceptions. In an exchange of the schedule `rows` a rank with a wider part sends fewer
// columns, but its return exchange sends more. For a residual of the schedule `pmm3d` a rank that keeps a part of its rows sends less.
// For such residuals all ranks are listed; with more than 128 ranks, only those at the first, the middle and the last coordinate of
// each axis. On two such grids the busiest rank of all sent at most 5 % more. A test compares with all ranks of small grids.

#include "graph/store/store_reader.hpp"
#include "models/gnn/plan/network_settings.hpp"
#include "models/training/optimizer.hpp"
#include "pmm/cost/machine_file.hpp"
#include "pmm/cost/step_plan.hpp"
#include "pmm/simulate/simulated_step.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace orthant::models {

// Choice of grid and schedule if the user leaves them open: the lists of all candidates are timed on a machine model,
// and the shortest epoch wins.

/// Seconds of an epoch on the rank with the most work. Infinite if the network cannot be trained on the grid.
using EpochSeconds = std::function<pmm::StepSeconds(pmm::GridShape const&, Schedule)>;

/// Predicts full-graph training: an epoch after the first, in fp32. Copies graph facts, settings and machine. Cost per call: the
/// list of an epoch, O(layers x ranks of an axis).
[[nodiscard]] EpochSeconds full_graph_seconds(graph::StoreFacts const& facts, NetworkSettings const& settings,
                                              pmm::Machine const& machine = pmm::assumed_machine());

/// The grids and schedules to choose from: "auto" leaves a choice open.
struct GridQuestion {
  int num_ranks = 1;
  std::string_view grid = "auto";     // or DxXxYxZ
  std::string_view schedule = "auto"; // or "pmm3d", "rows"
};

struct GridChoice {
  pmm::GridShape shape;
  Schedule schedule{};
  double seconds = 0; // per epoch; 0 if there was no choice
};

/// All grids of one data group and all schedules that the question leaves open, the fastest first. Ties are in the order of
/// all_shapes(), pmm3d before rows. The same on all ranks. A fixed grid must have num_ranks ranks, and a fixed schedule must exist;
/// otherwise throws UserError.
[[nodiscard]] std::vector<GridChoice> rank_grids(GridQuestion const& question, EpochSeconds const& seconds);

/// The first choice of rank_grids().
[[nodiscard]] GridChoice choose_grid(GridQuestion const& question, EpochSeconds const& seconds);

/// Replaces "auto" of --schedule by "rows" for a network that has no other schedule; returns other words unchanged.
[[nodiscard]] std::string_view open_schedules(NetworkSettings const& settings, std::string_view word);

/// Cost of one grid. All bytes are per rank, on the rank with the most.
struct GridCost {
  Schedule schedule{};
  pmm::GridShape shape;
  std::int64_t sent_bytes = 0;      // per epoch after the first, without evaluation
  std::int64_t num_calls = 0;       // collectives of that epoch
  std::int64_t pass_bytes = 0;      // bytes that the passes of that epoch read and write
  std::int64_t adjacency_bytes = 0; // A^ with its transpose, its scales and the weights of products
  std::int64_t array_bytes = 0;     // all arrays that the first step holds
  std::int64_t loading_bytes = 0;   // largest sum of arrays held at once before the first step
  std::int64_t narrowest_part = 0;  // columns of the narrowest operand of A^ in an epoch

  /// Largest sum of arrays held at once, while the graph is read or in a step.
  [[nodiscard]] std::int64_t peak_bytes() const { return std::max(array_bytes, loading_bytes); }

  pmm::StepSeconds seconds; // of that epoch, on the slowest rank
};

/// List of one rank: operations of an epoch and arrays of the training, in fp32.
[[nodiscard]] pmm::StepPlan list_of_rank(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                         graph::StoreFacts const& facts, NetworkPlan const& plan,
                                         NetworkSettings const& settings,
                                         OptimizerSettings const& optimizer = {});

/// Sent bytes of a list, over all communicators.
[[nodiscard]] std::int64_t sent_bytes_of(pmm::StepPlan const& step);

/// Whether the aggregations of an epoch split columns into at most W / least_width parts, where W is the largest width.
[[nodiscard]] bool has_wide_parts(pmm::GridShape const& shape, graph::StoreFacts const& facts,
                                  NetworkPlan const& plan, NetworkSettings const& settings,
                                  std::int64_t least_width);

/// Ranks whose lists of operations are made. For every cost, the largest value over all ranks occurs on one of them.
[[nodiscard]] std::vector<pmm::Coordinates> ranks_to_list(pmm::GridShape const& shape,
                                                          NetworkPlan const& plan);

/// Cost of this grid, with the schedule of `settings`. Time: a list of O(layers x ranks of the group) operations.
[[nodiscard]] GridCost cost_of_grid(pmm::GridShape const& shape, graph::StoreFacts const& facts,
                                    NetworkSettings const& settings,
                                    pmm::Machine const& machine = pmm::assumed_machine(),
                                    OptimizerSettings const& optimizer = {});

/// Order of grids. by_bytes: fewest sent bytes first; grids within 0.1 % of each other are ordered by memory.
/// by_seconds: shortest epoch first.
enum class GridOrder : std::uint8_t { by_bytes, by_seconds };

/// Costs of all grids with `num_ranks` ranks for which has_wide_parts() is true. Throws UserError if the bytes do not fit in 64 bits.
[[nodiscard]] std::vector<GridCost> costs_of_grids(int num_ranks, graph::StoreFacts const& facts,
                                                   NetworkSettings const& settings, std::int64_t least_width,
                                                   pmm::Machine const& machine = pmm::assumed_machine(),
                                                   GridOrder order = GridOrder::by_bytes,
                                                   OptimizerSettings const& optimizer = {});

using BytesByLabel = std::vector<std::pair<std::string, std::int64_t>>;

/// Arrays that the first step holds, summed by label, the largest sum first.
[[nodiscard]] BytesByLabel arrays_by_label(pmm::StepPlan const& step);
/// Arrays that single operations hold while the graph is read: for each label, the maximum over the operations.
[[nodiscard]] BytesByLabel loading_arrays_by_label(pmm::StepPlan const& step);

// Simulation of an epoch of full-graph training, message by message, on any grid (pmm/simulate/simulated_step.hpp).

/// Simulates an epoch after the first, in fp32. With a store, each rank has the non-zeros of its own block. Without a store, from
/// `most_listed_ranks` ranks on, one list is used for all ranks if their lists are equal.
[[nodiscard]] pmm::SimulatedSeconds
simulate_epoch(pmm::GridShape const& shape, graph::StoreFacts const& facts, NetworkSettings const& settings,
               pmm::Machine const& machine, pmm::SimulationSettings simulation,
               graph::GraphStore const* store = nullptr, OptimizerSettings const& optimizer = {});
inline constexpr int most_listed_ranks = 4096;

} // namespace orthant::models
