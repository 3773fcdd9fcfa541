// SPDX-License-Identifier: Apache-2.0
#include "pmm/grid/layout.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <ranges>

namespace orthant::pmm {
namespace {

/// True if rows and columns are split over different axes of the group.
bool is_spatial(Layout const& layout) {
  return !layout.rows.intersects(layout.columns) && group_axes.contains(layout.rows.with(layout.columns));
}

/// Returns "12", or "12 (tail 4)" with a tail.
std::string text_of(Granule const& granule) {
  return granule.tail == 0 ? fmt::format("{}", granule.size)
                           : fmt::format("{} (tail {})", granule.size, granule.tail);
}

/// Range of one part if there are more parts than granules, so that each part is a piece of a granule.
Range piece_of_granule(std::int64_t num_granules, std::int64_t num_parts, std::int64_t part,
                       Granule const& granule) {
  auto const pieces = num_parts / num_granules;
  auto const length = (granule.size - granule.tail) / pieces;
  ORTHANT_REQUIRE(num_parts % num_granules == 0 && length * pieces == granule.size - granule.tail, num_parts,
                  " parts of ", num_granules, " granules of ", text_of(granule));
  auto const begin = part / pieces * granule.size + part % pieces * length;
  return {begin, begin + length + (part % pieces == pieces - 1 ? granule.tail : 0)};
}

} // namespace

AxisSet Layout::third() const {
  ORTHANT_REQUIRE(is_spatial(*this), "rows and columns are split over different ones of x, y, z, not ",
                  pmm::name_of(rows), " and ", pmm::name_of(columns));
  return group_axes.without(rows).without(columns);
}

std::string Layout::to_string() const {
  if (!is_spatial(*this)) return fmt::format("[{},{}]", pmm::name_of(rows), pmm::name_of(columns));
  auto const third_axis = pmm::name_of(third());
  auto const how = storage == Storage::replicated     ? fmt::format("replicated over {}", third_axis)
                   : storage == Storage::flat_sharded ? fmt::format("flat-sharded over {}", third_axis)
                   : storage == Storage::row_sharded  ? fmt::format("row-sharded over {}", third_axis)
                                                      : fmt::format("partial over {}", third_axis);
  auto const granules = row_granule == Granule() && column_granule == Granule()
                            ? std::string()
                            : fmt::format(", granules {}/{}", text_of(row_granule), text_of(column_granule));
  return fmt::format("[{},{}] {}, orders {}/{}{}", pmm::name_of(rows), pmm::name_of(columns), how,
                     row_order.name, column_order.name, granules);
}

std::string Placement::to_string() const {
  auto const own = [](char const* what, std::optional<OwnRange> const& part) {
    return part ? fmt::format(", own {} {}..{} of part {}", what, part->range.begin, part->range.end,
                              part->part)
                : std::string();
  };
  auto const piece =
      own_piece ? fmt::format(", own piece {}..{}", own_piece->begin, own_piece->end) : std::string();
  return fmt::format("{} x {} {}{}{}{}", extents.rows, extents.columns, layout.to_string(),
                     own("rows", own_rows), own("columns", own_columns), piece);
}

Range part_of(GridShape const& shape, Coordinates const& coordinates, AxisSet axes, std::int64_t count,
              Granule const& granule) {
  ORTHANT_REQUIRE(count % granule.size == 0, count, " rows or columns in granules of ", granule.size);
  Range part{0, count / granule.size};
  if (auto const parts = shape.size(axes); granule.tail > 0 && parts > part.size() && part.size() > 0)
    return piece_of_granule(part.size(), parts, rank_within(shape, coordinates, axes), granule);
  for (auto const axis : nested_axes | std::views::reverse) {
    if (!axes.contains(axis)) continue;
    auto const inner = runtime::balanced_range(part.size(), shape.size(axis), coordinates.along(axis));
    part = {part.begin + inner.begin, part.begin + inner.end};
  }
  return {part.begin * granule.size, part.end * granule.size};
}

std::int64_t largest_part(GridShape const& shape, AxisSet axes, std::int64_t count, Granule const& granule) {
  std::int64_t largest = 0;
  for (int part = 0; part < shape.size(axes); ++part)
    largest =
        std::max(largest, part_of(shape, member_of(shape, {}, axes, part), axes, count, granule).size());
  return largest;
}

int part_holding(GridShape const& shape, AxisSet axes, std::int64_t count, std::int64_t index,
                 Granule const& granule) {
  ORTHANT_REQUIRE(granule.tail == 0, "the part that holds an index of granules with a tail");
  count /= granule.size;
  index /= granule.size;
  Coordinates at;
  for (auto const axis : nested_axes | std::views::reverse) {
    if (!axes.contains(axis)) continue;
    auto const part = runtime::balanced_part(count, shape.size(axis), index);
    auto const range = runtime::balanced_range(count, shape.size(axis), part);
    at.along(axis) = static_cast<int>(part);
    index -= range.begin;
    count = range.size();
  }
  return rank_within(shape, at, axes);
}

Block block_of(GridShape const& shape, Coordinates const& coordinates, Placement const& placement) {
  auto const& layout = placement.layout;
  auto const& extents = placement.extents;
  auto const own_or_balanced = [&](std::optional<OwnRange> const& own, AxisSet axes, std::int64_t count,
                                   Granule const& granule) {
    if (!own) return part_of(shape, coordinates, axes, count, granule);
    auto const place = rank_within(shape, coordinates, axes);
    ORTHANT_REQUIRE(own->part == place, "part ", place, " along ", pmm::name_of(axes),
                    " is known to its own ranks only: ", placement.to_string());
    return own->range;
  };
  Block block;
  block.rows = block.stored_rows =
      own_or_balanced(placement.own_rows, layout.rows, extents.rows, layout.row_granule);
  block.columns =
      own_or_balanced(placement.own_columns, layout.columns, extents.columns, layout.column_granule);
  auto const third = layout.third();
  if (placement.is_elsewhere() && layout.storage != Storage::flat_sharded) {
    block.stored_rows = {block.rows.begin, block.rows.begin};
    return block;
  }
  switch (layout.storage) {
  case Storage::replicated:
  case Storage::partial:
    block.num_stored = block.num_padded = block.size();
    break;
  case Storage::flat_sharded: {
    if (placement.own_piece) {
      block.first = placement.own_piece->begin;
      block.num_stored = block.num_padded = placement.own_piece->size();
      break;
    }
    auto const parts = static_cast<std::int64_t>(shape.size(third));
    block.num_padded = (block.size() + parts - 1) / parts;
    block.first = std::min(rank_within(shape, coordinates, third) * block.num_padded, block.size());
    block.num_stored = std::min(block.num_padded, block.size() - block.first);
    break;
  }
  case Storage::row_sharded: {
    auto const mine = part_of(shape, coordinates, third, block.rows.size());
    block.stored_rows = {block.rows.begin + mine.begin, block.rows.begin + mine.end};
    block.first = mine.begin * block.columns.size();
    block.num_stored = block.num_padded = mine.size() * block.columns.size();
    break;
  }
  }
  return block;
}

std::int64_t largest_piece(GridShape const& shape, Placement const& placement) {
  auto const& [layout, extents, own_rows, own_columns, own_piece] = placement;
  if (own_piece) return own_piece->size();
  auto const rows =
      own_rows ? own_rows->range.size() : largest_part(shape, layout.rows, extents.rows, layout.row_granule);
  auto const columns = own_columns
                           ? own_columns->range.size()
                           : largest_part(shape, layout.columns, extents.columns, layout.column_granule);
  auto const third = std::int64_t{shape.size(layout.third())};
  switch (layout.storage) {
  case Storage::flat_sharded:
    return (rows * columns + third - 1) / third;
  case Storage::row_sharded:
    return (rows + third - 1) / third * columns;
  case Storage::replicated:
  case Storage::partial:
    break;
  }
  return rows * columns;
}

std::vector<std::int64_t> piece_counts(GridShape const& shape, Coordinates const& coordinates,
                                       Placement const& placement) {
  ORTHANT_REQUIRE(!placement.own_piece, "a piece is known to its own rank only: ", placement.to_string());
  auto const third = placement.layout.third();
  std::vector<std::int64_t> counts;
  for (int part = 0; part < shape.size(third); ++part)
    counts.push_back(block_of(shape, member_of(shape, coordinates, third, part), placement).num_padded);
  return counts;
}

void require_composes(std::string_view formula, Placement const& a, Placement const& b, Placement const& c) {
  auto const axes_compose = is_spatial(a.layout) && is_spatial(b.layout) && is_spatial(c.layout) &&
                            a.layout.columns == b.layout.rows && a.layout.rows == c.layout.rows &&
                            b.layout.columns == c.layout.columns && c.layout.third() == a.layout.columns;
  auto const extents_compose = a.extents.columns == b.extents.rows && a.extents.rows == c.extents.rows &&
                               b.extents.columns == c.extents.columns;
  auto const orders_compose = a.layout.column_order == b.layout.row_order &&
                              a.layout.row_order == c.layout.row_order &&
                              b.layout.column_order == c.layout.column_order;
  auto const granules_compose = a.layout.column_granule == b.layout.row_granule &&
                                a.layout.row_granule == c.layout.row_granule &&
                                b.layout.column_granule == c.layout.column_granule;
  auto const ranges_compose =
      a.own_columns == b.own_rows && a.own_rows == c.own_rows && b.own_columns == c.own_columns;
  auto const what = !axes_compose       ? "axes"
                    : !extents_compose  ? "extents"
                    : !orders_compose   ? "orders"
                    : !granules_compose ? "granules"
                                        : "own ranges";
  ORTHANT_REQUIRE(axes_compose && extents_compose && orders_compose && granules_compose && ranges_compose,
                  formula, ": the ", what, " do not compose; A is ", a.to_string(), ", B is ", b.to_string(),
                  ", C is ", c.to_string());
}

} // namespace orthant::pmm
