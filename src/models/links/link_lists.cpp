// SPDX-License-Identifier: Apache-2.0
#include "models/links/link_lists.hpp"

#include "graph/links/edge_split.hpp"

#include <algorithm>
#include <utility>

namespace orthant::models {

LinkLists training_links(graph::CsrBlock const& block, std::span<std::int64_t const> row_ids,
                         std::span<std::int64_t const> column_ids) {
  LinkLists links;
  for (std::size_t row = 0; row < row_ids.size(); ++row) {
    for (auto k = block.row_offsets[row]; k < block.row_offsets[row + 1]; ++k) {
      auto const column = block.columns[static_cast<std::size_t>(k)];
      auto const [u, v] = std::pair(row_ids[row], column_ids[static_cast<std::size_t>(column)]);
      if (u != v && graph::link_between(u, v).source == u) links.columns.push_back(column);
    }
    links.offsets.push_back(links.size());
  }
  return links;
}

LinkLists held_out_links(graph::GraphStore const& store, graph::Split part, graph::LinkKind kind,
                         graph::Ranges const& rows, graph::Ranges const& columns) {
  constexpr std::int64_t at_once = std::int64_t{1} << 18;
  graph::ListPlaces const row_of(rows), column_of(columns);
  auto const count = store.facts().num_held_out[static_cast<std::size_t>(part)];
  std::vector<std::pair<std::int64_t, std::int64_t>> mine;
  for (std::int64_t begin = 0; begin < count; begin += at_once)
    for (auto const& link : store.read_links(part, kind, {begin, std::min(count, begin + at_once)}))
      if (auto const row = row_of(link.source); row >= 0)
        if (auto const column = column_of(link.target); column >= 0) mine.emplace_back(row, column);
  std::ranges::sort(mine);
  LinkLists links;
  auto next = mine.begin();
  for (std::int64_t row = 0; row < graph::total_size(rows); ++row) {
    for (; next != mine.end() && next->first == row; ++next)
      links.columns.push_back(static_cast<runtime::LocalColumn>(next->second));
    links.offsets.push_back(links.size());
  }
  return links;
}

std::vector<std::int64_t> ids_of(graph::GraphStore const& store, graph::Ranges const& ranges) {
  std::vector<std::int64_t> all;
  for (auto const& range : ranges) {
    auto const ids = store.read_original_ids(graph::Order::p1, range);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  return all;
}

} // namespace orthant::models
