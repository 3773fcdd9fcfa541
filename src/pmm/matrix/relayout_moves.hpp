#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Moves of a relayout: lists of the rows and columns that ranks send to each other. Both sides of a message list them in the same order.

#include "pmm/matrix/relayout.hpp"

#include <cstdint>
#include <vector>

namespace orthant::pmm::detail {

/// Moves that this rank sends to and receives from each rank of the group.
struct Moves {
  MovesByRank sends;
  MovesByRank receives;
};

/// True if every rank already stores the elements of its new piece.
[[nodiscard]] bool moves_nothing(GridShape const& shape, Layout const& from, Layout const& to);

/// Moves between placements with equal row orders. Not collective. Cost: O(ranks of the group).
[[nodiscard]] Moves intersecting_moves(ProcessGrid const& grid, Placement const& from, Placement const& to);

/// Moves between different row orders, from the source rows of this rank's rows. Collective over the group, whose ranks exchange their
/// requests. Throws Error on all ranks if the number of source rows is wrong or one does not exist.
[[nodiscard]] Moves requested_moves(ProcessGrid const& grid, Placement const& from, Placement const& to,
                                    std::vector<std::int64_t> const& source_rows);

/// Moves of sampled rows. Not collective. Throws Error, on this rank only, if `rows` does not fit the placements.
[[nodiscard]] Moves sampled_moves(ProcessGrid const& grid, Placement const& from, Placement const& to,
                                  SampledRows const& rows);

struct Rectangle {
  Range rows;
  Range columns;
};
/// The rectangles of a block that form a piece, in global indices, in the order of its memory. There are at most three. The first and the last
/// rectangle of a flat shard may be parts of a row.
[[nodiscard]] std::vector<Rectangle> rectangles_of(Block const& block, Storage storage);

/// Copy of a replicated block that the rank at `reader` reads, as a coordinate along the third axis: its own copy if it has one, or
/// otherwise one that distributes the readers over the copies.
[[nodiscard]] int copy_for(GridShape const& shape, Placement const& from, Placement const& to,
                           Coordinates const& reader, Coordinates const& owner);

/// Rank within its group of X x Y x Z.
[[nodiscard]] int group_rank_of(GridShape const& shape, Coordinates const& coordinates);

} // namespace orthant::pmm::detail
