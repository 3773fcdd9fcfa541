// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/plan/block_counts.hpp"

#include "runtime/range.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <tuple>
#include <utility>

namespace orthant::models {
namespace {

using RangesOf = std::function<std::vector<pmm::Range>(pmm::Coordinates const&)>;

/// The place along an axis whose ranges hold each position.
std::vector<std::int32_t> parts_of_positions(std::int64_t num_positions, pmm::GridShape const& shape,
                                             pmm::Axis axis, RangesOf const& ranges_of) {
  std::vector<std::int32_t> parts(static_cast<std::size_t>(num_positions));
  pmm::Coordinates coordinates;
  for (int place = 0; place < shape.size(axis); ++place) {
    coordinates.along(axis) = place;
    for (auto const& range : ranges_of(coordinates))
      std::fill(parts.begin() + range.begin, parts.begin() + range.end, place);
  }
  return parts;
}

/// The one axis of a set; a block of A^ is split over one in each direction.
pmm::Axis axis_of(pmm::AxisSet axes) {
  for (auto const axis : pmm::spatial_axes)
    if (axes == pmm::AxisSet{axis}) return axis;
  runtime::throw_internal("a block of A^ is split over one axis in each direction",
                          std::source_location::current());
}

} // namespace

BlockCounts::BlockCounts(pmm::GridShape const& shape, NetworkLayerPlan const& layer)
    : shape_(shape),
      adjacency_(layer.adjacency),
      parity_(layer.is_even ? graph::Parity::even : graph::Parity::odd),
      row_axes_(layer.owners ? pmm::AxisSet{layer.owners->roles.c} : layer.adjacency.layout.rows),
      column_axes_(layer.owners ? pmm::AxisSet{layer.owners->roles.a} : layer.adjacency.layout.columns) {
  auto const n = layer.adjacency.extents.rows;
  auto const of_rows = [&](pmm::Coordinates const& at) {
    if (layer.owners) return pmm::block_rows(shape, at, layer.owners->roles, n);
    return std::vector{pmm::block_of(shape, at, layer.adjacency).rows};
  };
  auto const of_columns = [&](pmm::Coordinates const& at) {
    if (layer.owners) return pmm::block_columns(shape, at, layer.owners->roles, n);
    return std::vector{pmm::block_of(shape, at, layer.adjacency).columns};
  };
  row_parts_ = parts_of_positions(n, shape, axis_of(row_axes_), of_rows);
  column_parts_ = parts_of_positions(n, shape, axis_of(column_axes_), of_columns);
  counts_.resize(static_cast<std::size_t>(shape.size(row_axes_)) *
                 static_cast<std::size_t>(shape.size(column_axes_)));
}

void BlockCounts::add(graph::CsrBlock const& rows) {
  auto const width = static_cast<std::size_t>(shape_.size(column_axes_));
  for (std::int64_t row = 0; row < rows.rows.size(); ++row) {
    auto const part = static_cast<std::size_t>(row_parts_[static_cast<std::size_t>(rows.rows.begin + row)]);
    auto* const counts = counts_.data() + part * width;
    for (auto k = rows.row_offsets[static_cast<std::size_t>(row)];
         k < rows.row_offsets[static_cast<std::size_t>(row) + 1]; ++k)
      ++counts[column_parts_[static_cast<std::size_t>(rows.columns[static_cast<std::size_t>(k)])]];
  }
}

std::int64_t BlockCounts::of(pmm::Coordinates const& coordinates) const {
  auto const row = static_cast<std::size_t>(coordinates.along(axis_of(row_axes_)));
  auto const column = static_cast<std::size_t>(coordinates.along(axis_of(column_axes_)));
  return counts_[row * static_cast<std::size_t>(shape_.size(column_axes_)) + column];
}

std::vector<BlockCounts> count_blocks(graph::GraphStore const& store, pmm::GridShape const& shape,
                                      NetworkPlan const& plan) {
  std::vector<BlockCounts> all;
  for (auto const& layer : plan.layers)
    if (layer.aggregates() &&
        std::ranges::none_of(all, [&](BlockCounts const& counts) { return counts.are_of(layer.adjacency); }))
      all.emplace_back(shape, layer);
  constexpr int num_bands = 240; // as many as rows of tiles
  auto const n = store.facts().num_vertices;
  for (auto const parity : {graph::Parity::even, graph::Parity::odd}) {
    if (std::ranges::none_of(all, [&](BlockCounts const& counts) { return counts.parity() == parity; }))
      continue;
    for (int band = 0; band < num_bands; ++band) {
      auto const rows = runtime::balanced_range(n, num_bands, band);
      if (rows.size() == 0) continue;
      auto const block = store.read_block(parity, rows, {0, n});
      for (auto& counts : all)
        if (counts.parity() == parity) counts.add(block);
    }
  }
  return all;
}

std::vector<pmm::Placement> sampled_blocks(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                           graph::StoreFacts const& facts, NetworkPlan const& plan,
                                           bool shares_transposes) {
  using Part = std::pair<int, int>; // parts, and which one
  std::set<std::tuple<bool, Part, Part>> known;
  std::vector<pmm::Placement> blocks;
  auto const part = [&](pmm::AxisSet axes) {
    return Part(shape.size(axes), rank_within(shape, coordinates, axes));
  };
  for (auto const& layer : plan.layers) {
    if (!layer.aggregates()) continue;
    auto const is_even = !facts.has_two_orders() || layer.is_even;
    auto const is_transpose_even = !facts.has_two_orders() || !layer.is_even;
    auto const rows = part(layer.adjacency.layout.rows), columns = part(layer.adjacency.layout.columns);
    if (shares_transposes && known.contains({is_transpose_even, columns, rows})) continue;
    if (known.insert({is_even, rows, columns}).second) blocks.push_back(layer.adjacency);
  }
  return blocks;
}

} // namespace orthant::models
