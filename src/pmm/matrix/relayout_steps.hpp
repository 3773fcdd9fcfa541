#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What each rank gives each other rank in a relayout: lists that both sides of a message derive in the same order.
//
// How much a relayout moves on one rank. It depends on where the row orders put each row, so it is exact only once
// the orders are known. Before that, only its mean is known: under two different orders the rows lie at random.

#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/relayout.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace orthant::pmm::detail {

/// What this rank sends to and receives from each rank of the group.
struct Moves {
  MovesByRank sends;
  MovesByRank receives;
};

/// Whether every rank already has what it will store.
[[nodiscard]] bool moves_nothing(GridShape const& shape, Layout const& from, Layout const& to);

/// The moves between equal orders. Costs O(ranks).
[[nodiscard]] Moves intersecting_moves(ProcessGrid const& grid, Placement const& from, Placement const& to);

/// The moves between row orders, by the sources of this rank's rows. Collective over the group: tells every rank
/// which rows are asked of it. Throws Error on all ranks.
[[nodiscard]] Moves requested_moves(ProcessGrid const& grid, Placement const& from, Placement const& to,
                                    std::vector<std::int64_t> const& source_rows);

/// The moves of sampled rows. Not collective; throws Error on this rank.
[[nodiscard]] Moves sampled_moves(ProcessGrid const& grid, Placement const& from, Placement const& to,
                                  SampledRows const& rows);

[[nodiscard]] Range intersection(Range a, Range b);

/// Which of the equal copies of a replicated block the rank at `reader` takes, as a coordinate along the
/// third axis: its own if it has one, or else one that spreads the readers over the copies.
[[nodiscard]] int copy_for(GridShape const& shape, Placement const& from, Placement const& to,
                           Coordinates const& reader, Coordinates const& owner);

/// Rank within its group of X x Y x Z.
[[nodiscard]] int group_rank_of(GridShape const& shape, Coordinates const& coordinates);

} // namespace orthant::pmm::detail

namespace orthant::pmm {

struct RelayoutSizes {
  // Contiguous copies on this rank, into the send buffer, and out of the receive buffer.
  std::int64_t num_kept_runs = 0;
  std::int64_t num_packed_runs = 0;
  std::int64_t num_unpacked_runs = 0;
  std::int64_t num_kept = 0;     // elements that this rank copies to itself
  std::int64_t num_sent = 0;     // elements
  std::int64_t num_received = 0; // elements
  bool communicates = false;     // on any rank of the group
};

/// The longest contiguous copy, in elements: long enough to stream, short enough to share out.
inline constexpr std::int64_t longest_run = 4096;

/// Lists the copies and the all_to_all of one run, of numbers in that format; and the arrays of a Relayout.
void plan_relayout(StepPlan& step, RelayoutSizes const& sizes, Wire format = Wire::native);
void plan_relayout_arrays(StepPlan& step, RelayoutSizes const& sizes);

/// Whether rows of `from` have the same numbers in `to`, or lie there at random.
enum class RowOrders : std::uint8_t { equal, independent };

/// The sizes of this rank's Relayout between replicated placements, rounded to whole runs and elements: the
/// mean over all pairs of independent orders, nearly exact for equal ones. Cost: O(ranks of the group).
[[nodiscard]] RelayoutSizes expected_sizes(GridShape const& shape, Coordinates const& coordinates,
                                           Placement const& from, Placement const& to, RowOrders orders);

/// How many rows of a sample lie both in these rows of `from` and in these rows of `to`.
using CountRows = std::function<std::int64_t(Range given, Range wanted)>;

/// The same of sampled rows, which are counted; placements are those of the whole matrix. Exact but for the numbers of runs.
[[nodiscard]] RelayoutSizes sampled_sizes(GridShape const& shape, Coordinates const& coordinates,
                                          Placement const& from, Placement const& to, CountRows const& count);

} // namespace orthant::pmm
