// SPDX-License-Identifier: Apache-2.0
//
// Relayout of sampled rows, without communication at set-up: both sides of a message order its rows by their positions in the larger
// matrix.
#include "pmm/matrix/relayout_moves.hpp"

#include <algorithm>
#include <numeric>

namespace orthant::pmm::detail {
namespace {

/// Indices of `positions`, in ascending order of positions.
std::vector<std::size_t> sorted_by_position(std::span<std::int64_t const> positions) {
  std::vector<std::size_t> order(positions.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return positions[i]; });
  return order;
}

/// Throws Error unless every position is in `part`.
void require_in_part(std::span<std::int64_t const> positions, Range part, Placement const& placement) {
  for (auto const position : positions)
    ORTHANT_REQUIRE(part.contains(position), "a sampled row at ", position,
                    " of the larger matrix, in the part ", part.begin, "..", part.end, "; ",
                    placement.to_string());
}

/// Calls visit(coordinates, columns) for each rank that stores a part of a row, where `at` are the coordinates of one of them.
template<class Visit>
void for_each_column_part(GridShape const& shape, Placement const& placement, Coordinates at,
                          Visit const& visit) {
  auto const axes = placement.layout.columns;
  for (int part = 0; part < shape.size(axes); ++part) {
    at = member_of(shape, at, axes, part);
    visit(at, part_of(shape, at, axes, placement.extents.columns, placement.layout.column_granule));
  }
}

/// Moves of this rank's rows to the ranks that need them, sorted by position in the order of `to`.
MovesByRank sampled_sends(ProcessGrid const& grid, Placement const& from, Placement const& to,
                          SampledRows const& rows) {
  auto const& shape = grid.shape();
  auto const me = grid.coordinates();
  auto const block = block_of(grid, from);
  auto const row_axes = to.layout.rows;
  auto const third = to.layout.third();
  auto const own_copy = grid.coordinate(from.layout.third());
  MovesByRank moves(static_cast<std::size_t>(grid.shape().size(group_axes)));
  for (auto const i : sorted_by_position(rows.from_in_target)) {
    auto const in_row = member_of(shape, me, row_axes,
                                  part_holding(shape, row_axes, rows.num_positions, rows.from_in_target[i]));
    auto const row = block.rows.begin + static_cast<std::int64_t>(i);
    for (int copy = 0; copy < shape.size(third); ++copy) {
      auto const target = member_of(shape, in_row, third, copy);
      for_each_column_part(shape, to, target, [&](Coordinates const& reader, Range wanted) {
        auto const columns = intersection(block.columns, wanted);
        if (columns.size() > 0 && copy_for(shape, from, to, reader, me) == own_copy)
          moves[static_cast<std::size_t>(group_rank_of(shape, reader))].push_back({row, 0, 1, columns});
      });
    }
  }
  return moves;
}

/// Moves of this rank's rows in `to` from the ranks that store them, sorted by position in the order of `to`.
MovesByRank sampled_receives(ProcessGrid const& grid, Placement const& from, Placement const& to,
                             SampledRows const& rows) {
  auto const& shape = grid.shape();
  auto const block = block_of(grid, to);
  auto const row_axes = from.layout.rows;
  auto const third = from.layout.third();
  MovesByRank moves(static_cast<std::size_t>(grid.shape().size(group_axes)));
  for (auto const i : sorted_by_position(rows.to_in_target)) {
    auto const source = member_of(shape, grid.coordinates(), row_axes,
                                  part_holding(shape, row_axes, rows.num_positions, rows.to_in_source[i]));
    auto const row = block.rows.begin + static_cast<std::int64_t>(i);
    for_each_column_part(shape, from, source, [&](Coordinates owner, Range given) {
      auto const columns = intersection(block.columns, given);
      if (columns.size() == 0) return;
      owner = member_of(shape, owner, third, copy_for(shape, from, to, grid.coordinates(), owner));
      moves[static_cast<std::size_t>(group_rank_of(shape, owner))].push_back({0, row, 1, columns});
    });
  }
  return moves;
}

void require_sampled(ProcessGrid const& grid, Placement const& from, Placement const& to,
                     SampledRows const& rows) {
  auto const is_sampled = [](Placement const& placement) {
    return placement.own_rows && !placement.own_columns && placement.layout.storage == Storage::replicated;
  };
  ORTHANT_REQUIRE(is_sampled(from) && is_sampled(to),
                  "sampled rows are replicated, with own rows and balanced columns; from ", from.to_string(),
                  " to ", to.to_string());
  auto const num_source_rows = from.own_rows->range.size();
  auto const num_target_rows = to.own_rows->range.size();
  ORTHANT_REQUIRE(std::ssize(rows.from_in_target) == num_source_rows &&
                      std::ssize(rows.to_in_target) == num_target_rows &&
                      std::ssize(rows.to_in_source) == num_target_rows,
                  "positions of ", rows.from_in_target.size(), ", ", rows.to_in_target.size(), " and ",
                  rows.to_in_source.size(), " rows, from ", from.to_string(), " to ", to.to_string());
  require_in_part(rows.from_in_target, {0, rows.num_positions}, from);
  require_in_part(rows.to_in_source, {0, rows.num_positions}, to);
  require_in_part(rows.to_in_target,
                  part_of(grid.shape(), grid.coordinates(), to.layout.rows, rows.num_positions), to);
}

} // namespace

Moves sampled_moves(ProcessGrid const& grid, Placement const& from, Placement const& to,
                    SampledRows const& rows) {
  require_sampled(grid, from, to, rows);
  Moves moves{sampled_sends(grid, from, to, rows), sampled_receives(grid, from, to, rows)};
  // Rows that stay on this rank are in both lists, in the same order.
  auto const me = static_cast<std::size_t>(rank_within(grid.shape(), grid.coordinates(), group_axes));
  auto const& given = moves.sends[me];
  auto& taken = moves.receives[me];
  ORTHANT_REQUIRE(given.size() == taken.size(), given.size(), " rows leave this rank for itself, ",
                  taken.size(), " arrive: the positions do not fit");
  for (std::size_t i = 0; i < given.size(); ++i)
    taken[i].source_row = given[i].source_row;
  return moves;
}

} // namespace orthant::pmm::detail
