// SPDX-License-Identifier: Apache-2.0
#include "pmm/aggregate/cells.hpp"

#include <algorithm>
#include <numeric>

namespace orthant::pmm {
namespace {

/// Ranges of the cells of the ranks along `slow` and `fast`, `slow` slowest.
std::vector<Range> cells_of(GridShape const& shape, Coordinates at, Axis slow, Axis fast,
                            std::int64_t num_rows) {
  std::vector<Range> cells;
  for (int i = 0; i < shape.size(slow); ++i)
    for (int j = 0; j < shape.size(fast); ++j) {
      at.along(slow) = i;
      at.along(fast) = j;
      cells.push_back(part_of(shape, at, group_axes, num_rows));
    }
  return cells;
}

/// Sizes of the `num_slabs` equally many cells in a row.
std::vector<std::int64_t> slab_sizes(std::vector<Range> const& cells, int num_slabs) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(num_slabs));
  auto const per_slab = cells.size() / sizes.size();
  for (std::size_t i = 0; i < cells.size(); ++i)
    sizes[i / per_slab] += cells[i].size();
  return sizes;
}

std::vector<Range> merged(std::vector<Range> const& cells) {
  std::vector<Range> ranges;
  for (auto const& cell : cells) {
    if (cell.size() == 0) continue;
    if (!ranges.empty() && ranges.back().end == cell.begin)
      ranges.back().end = cell.end;
    else
      ranges.push_back(cell);
  }
  return ranges;
}

} // namespace

std::int64_t CellSizes::num_columns() const {
  return std::accumulate(over_c.begin(), over_c.end(), std::int64_t{0});
}

std::int64_t CellSizes::num_rows() const {
  return std::accumulate(over_a.begin(), over_a.end(), std::int64_t{0});
}

CellSizes contiguous_cells(GridShape const& shape, Coordinates const& coordinates, Roles const& roles,
                           std::int64_t num_rows) {
  CellSizes sizes;
  auto at = coordinates;
  for (int b = 0; b < shape.size(roles.b); ++b) {
    at.along(roles.b) = b;
    sizes.over_b.push_back(part_of(shape, at, group_axes, num_rows).size());
  }
  sizes.over_c = slab_sizes(cells_of(shape, coordinates, roles.c, roles.b, num_rows), shape.size(roles.c));
  sizes.over_a = slab_sizes(cells_of(shape, coordinates, roles.a, roles.b, num_rows), shape.size(roles.a));
  return sizes;
}

std::vector<Range> block_columns(GridShape const& shape, Coordinates const& coordinates, Roles const& roles,
                                 std::int64_t num_rows) {
  return merged(cells_of(shape, coordinates, roles.c, roles.b, num_rows));
}

std::vector<Range> block_rows(GridShape const& shape, Coordinates const& coordinates, Roles const& roles,
                              std::int64_t num_rows) {
  return merged(cells_of(shape, coordinates, roles.a, roles.b, num_rows));
}

std::vector<std::int64_t> counts_by_slab(std::vector<runtime::LocalColumn> const& places,
                                         std::vector<std::int64_t> const& slab_rows, std::int64_t begin) {
  std::vector<std::int64_t> counts;
  auto first = std::ranges::lower_bound(places, begin);
  for (auto const size : slab_rows) {
    begin += size;
    auto const end = std::lower_bound(first, places.end(), begin);
    counts.push_back(end - first);
    first = end;
  }
  return counts;
}

} // namespace orthant::pmm
