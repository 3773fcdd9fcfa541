// SPDX-License-Identifier: Apache-2.0
#include "pmm/grid/layout.hpp"

#include "runtime/error.hpp"

#include <algorithm>

namespace orthant::pmm {
namespace {

std::string_view name_of(IndexOrder order) {
  switch (order) {
  case IndexOrder::natural:
    return "natural";
  case IndexOrder::p1:
    return "p1";
  case IndexOrder::p2:
    return "p2";
  }
  return "unknown";
}

bool is_spatial(Layout const& layout) {
  return layout.rows != layout.columns && layout.rows != Axis::data && layout.columns != Axis::data;
}

} // namespace

Axis Layout::third() const {
  ORTHANT_REQUIRE(is_spatial(*this), "a matrix is split over two of x, y, z, not ", pmm::name_of(rows),
                  " and ", pmm::name_of(columns));
  return static_cast<Axis>(3 - static_cast<int>(rows) - static_cast<int>(columns));
}

std::string Layout::to_string() const {
  if (!is_spatial(*this)) return fmt::format("[{},{}]", pmm::name_of(rows), pmm::name_of(columns));
  auto const third_axis = pmm::name_of(third());
  auto const how = storage == Storage::replicated     ? fmt::format("replicated over {}", third_axis)
                   : storage == Storage::flat_sharded ? fmt::format("flat-sharded over {}", third_axis)
                                                      : fmt::format("row-sharded over {}", third_axis);
  return fmt::format("[{},{}] {}, orders {}/{}", pmm::name_of(rows), pmm::name_of(columns), how,
                     name_of(row_order), name_of(column_order));
}

std::string Placement::to_string() const {
  auto const own = [](char const* what, std::optional<OwnRange> const& part) {
    return part ? fmt::format(", own {} {}..{} of part {}", what, part->range.begin, part->range.end,
                              part->part)
                : std::string();
  };
  return fmt::format("{} x {} {}{}{}", extents.rows, extents.columns, layout.to_string(),
                     own("rows", own_rows), own("columns", own_columns));
}

Block block_of(GridShape const& shape, Coordinates const& coordinates, Placement const& placement) {
  auto const& layout = placement.layout;
  auto const& extents = placement.extents;
  auto const part_along = [&](Axis axis, std::int64_t count) {
    return runtime::balanced_range(count, shape.size(axis), coordinates.along(axis));
  };
  auto const own_or_balanced = [&](std::optional<OwnRange> const& own, Axis axis, std::int64_t count) {
    if (!own) return part_along(axis, count);
    ORTHANT_REQUIRE(own->part == coordinates.along(axis), "part ", coordinates.along(axis), " along ",
                    pmm::name_of(axis), " is known to its own ranks only: ", placement.to_string());
    return own->range;
  };
  Block block;
  block.rows = block.stored_rows = own_or_balanced(placement.own_rows, layout.rows, extents.rows);
  block.columns = own_or_balanced(placement.own_columns, layout.columns, extents.columns);
  auto const third = layout.third();
  switch (layout.storage) {
  case Storage::replicated:
    block.num_stored = block.num_padded = block.size();
    break;
  case Storage::flat_sharded: {
    auto const parts = static_cast<std::int64_t>(shape.size(third));
    block.num_padded = (block.size() + parts - 1) / parts;
    block.first = std::min(coordinates.along(third) * block.num_padded, block.size());
    block.num_stored = std::min(block.num_padded, block.size() - block.first);
    break;
  }
  case Storage::row_sharded: {
    auto const mine = part_along(third, block.rows.size());
    block.stored_rows = {block.rows.begin + mine.begin, block.rows.begin + mine.end};
    block.first = mine.begin * block.columns.size();
    block.num_stored = block.num_padded = mine.size() * block.columns.size();
    break;
  }
  }
  return block;
}

std::vector<std::int64_t> piece_counts(GridShape const& shape, Coordinates coordinates,
                                       Placement const& placement) {
  auto const third = placement.layout.third();
  std::vector<std::int64_t> counts;
  for (int part = 0; part < shape.size(third); ++part) {
    coordinates.along(third) = part;
    counts.push_back(block_of(shape, coordinates, placement).num_padded);
  }
  return counts;
}

void require_composes(std::string_view formula, Placement const& a, Placement const& b, Placement const& c) {
  auto const axes_compose = is_spatial(a.layout) && is_spatial(b.layout) && is_spatial(c.layout) &&
                            a.layout.columns == b.layout.rows && a.layout.rows == c.layout.rows &&
                            b.layout.columns == c.layout.columns;
  auto const extents_compose = a.extents.columns == b.extents.rows && a.extents.rows == c.extents.rows &&
                               b.extents.columns == c.extents.columns;
  auto const orders_compose = a.layout.column_order == b.layout.row_order &&
                              a.layout.row_order == c.layout.row_order &&
                              b.layout.column_order == c.layout.column_order;
  auto const ranges_compose =
      a.own_columns == b.own_rows && a.own_rows == c.own_rows && b.own_columns == c.own_columns;
  auto const what = !axes_compose      ? "axes"
                    : !extents_compose ? "extents"
                    : !orders_compose  ? "orders"
                                       : "own ranges";
  ORTHANT_REQUIRE(axes_compose && extents_compose && orders_compose && ranges_compose, formula, ": the ",
                  what, " do not compose; A is ", a.to_string(), ", B is ", b.to_string(), ", C is ",
                  c.to_string());
}

} // namespace orthant::pmm
