#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What each rank gives each other rank in a relayout: lists that both sides of a message derive in the same order.

#include "pmm/matrix/relayout.hpp"

#include <cstdint>
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
