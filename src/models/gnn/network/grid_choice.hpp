#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What an epoch of full-graph training would cost on every grid of a number of ranks, none of which need
// exist: sums over the list of a step (pmm/cost/step_plan.hpp) of the rank that sends and holds most.
//
// That is rank 0. Balanced parts are larger, or as large, at lower coordinates, and so is every block: its
// rows, its columns, and its piece of a flat shard. A collective over a group sends in proportion to a block
// that the whole group shares, and deals what is left over to its first ranks. Only an exchange of the
// schedule rows sends fewer columns if the own part is wider; its return sends the more. A residual of the
// schedule pmm3d is different: a rank that keeps a part of its rows sends less. Then all ranks are listed, or,
// of more than 128, those at the first, the middle and the last coordinate of each axis; on two such grids the
// busiest rank sends at most 5 % more. A test compares with all ranks of small grids.

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

// On which grid and with which schedule a network trains, if the user leaves them open: those whose epoch takes least
// on a machine (pmm/cost/step_plan.hpp), by the lists of all.

/// How long an epoch takes on the rank with the most work. Infinitely long on a grid that cannot train.
using EpochSeconds = std::function<pmm::StepSeconds(pmm::GridShape const&, Schedule)>;

/// Of full-graph training: an epoch after the first, in fp32. Graph, settings and machine are copied. Costs the
/// list of an epoch: O(layers x ranks of an axis).
[[nodiscard]] EpochSeconds full_graph_seconds(graph::StoreFacts const& facts, NetworkSettings const& settings,
                                              pmm::Machine const& machine = pmm::assumed_machine());

/// What is open.
struct GridQuestion {
  int num_ranks = 1;
  std::string_view grid = "auto";     // or DxXxYxZ
  std::string_view schedule = "auto"; // or "pmm3d", "rows"
};

struct GridChoice {
  pmm::GridShape shape;
  Schedule schedule{};
  double seconds = 0; // of an epoch; 0 if nothing was open
};

/// All choices that the question leaves, the fastest first: grids of one data group, with each schedule. Equally fast ones are in the order of all_shapes(), and pmm3d
/// before rows. The same on all ranks. Throws UserError for what is no grid of that many ranks, and for an unknown schedule.
[[nodiscard]] std::vector<GridChoice> rank_grids(GridQuestion const& question, EpochSeconds const& seconds);

/// The first of them.
[[nodiscard]] GridChoice choose_grid(GridQuestion const& question, EpochSeconds const& seconds);

/// What --schedule WORD leaves open to that network: "rows" in place of "auto" if it has no other.
[[nodiscard]] std::string_view open_schedules(NetworkSettings const& settings, std::string_view word);

/// Of one grid. All bytes are per rank, and those of the rank that has most.
struct GridCost {
  Schedule schedule{};
  pmm::GridShape shape;
  std::int64_t sent_bytes = 0;      // in an epoch after the first, without evaluation
  std::int64_t num_calls = 0;       // collectives of that epoch
  std::int64_t pass_bytes = 0;      // that the passes of that epoch read and write
  std::int64_t adjacency_bytes = 0; // of A^, with its transpose, its scales and the weights of products
  std::int64_t array_bytes = 0;     // of all arrays that the first step holds
  std::int64_t loading_bytes = 0;   // the most that is held at once until the first step begins
  std::int64_t narrowest_part = 0;  // columns of the narrowest block that A^ is multiplied by in an epoch

  /// Of all that is held at once: while the graph is read, or in a step.
  [[nodiscard]] std::int64_t peak_bytes() const { return std::max(array_bytes, loading_bytes); }

  pmm::StepSeconds seconds; // of that epoch on a machine, for the rank that takes longest
};

/// All that one rank does and holds: operations of an epoch, arrays of the training. fp32.
[[nodiscard]] pmm::StepPlan list_of_rank(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                         graph::StoreFacts const& facts, NetworkPlan const& plan,
                                         NetworkSettings const& settings,
                                         OptimizerSettings const& optimizer = {});

/// Sent bytes of a list, over all communicators.
[[nodiscard]] std::int64_t sent_bytes_of(pmm::StepPlan const& step);

/// Whether the aggregations of an epoch are split into at most W / least_width parts of columns, where W columns are the widest.
[[nodiscard]] bool has_wide_parts(pmm::GridShape const& shape, graph::StoreFacts const& facts,
                                  NetworkPlan const& plan, NetworkSettings const& settings,
                                  std::int64_t least_width);

/// Ranks of which one has the most of everything.
[[nodiscard]] std::vector<pmm::Coordinates> ranks_to_list(pmm::GridShape const& shape,
                                                          NetworkPlan const& plan);

/// For that schedule and grid. Costs a list of O(layers x ranks of the group) operations.
[[nodiscard]] GridCost cost_of_grid(pmm::GridShape const& shape, graph::StoreFacts const& facts,
                                    NetworkSettings const& settings,
                                    pmm::Machine const& machine = pmm::assumed_machine(),
                                    OptimizerSettings const& optimizer = {});

/// What comes first: the fewest sent bytes, and of grids within a thousandth of each other the smallest memory; or the
/// least `seconds`.
enum class GridOrder : std::uint8_t { by_bytes, by_seconds };

/// The costs of all grids of that many ranks that has_wide_parts() takes. Throws UserError if the bytes cannot be counted in 64 bits.
[[nodiscard]] std::vector<GridCost> costs_of_grids(int num_ranks, graph::StoreFacts const& facts,
                                                   NetworkSettings const& settings, std::int64_t least_width,
                                                   pmm::Machine const& machine = pmm::assumed_machine(),
                                                   GridOrder order = GridOrder::by_bytes,
                                                   OptimizerSettings const& optimizer = {});

using BytesByLabel = std::vector<std::pair<std::string, std::int64_t>>;

/// The arrays of a list that the first step holds, added up by label, the largest sum first.
[[nodiscard]] BytesByLabel arrays_by_label(pmm::StepPlan const& step);
/// The same of arrays that single operations hold while the graph is read: of the operation that holds most
/// under that label.
[[nodiscard]] BytesByLabel loading_arrays_by_label(pmm::StepPlan const& step);

// An epoch of full-graph training played on a machine, message by message (pmm/simulate/simulated_step.hpp), on a grid that need not exist.

/// An epoch after the first, in fp32. With a store, ranks have the non-zeros of their own blocks; else, if nothing tells them apart,
/// from `most_listed_ranks` on one list stands for all.
[[nodiscard]] pmm::SimulatedSeconds
simulate_epoch(pmm::GridShape const& shape, graph::StoreFacts const& facts, NetworkSettings const& settings,
               pmm::Machine const& machine, pmm::SimulationSettings simulation,
               graph::GraphStore const* store = nullptr, OptimizerSettings const& optimizer = {});
inline constexpr int most_listed_ranks = 4096;

} // namespace orthant::models
