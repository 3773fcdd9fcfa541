// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/links/link_lists.hpp"

#include "graph/partition/link_sets.hpp"
#include "runtime/numbers/random.hpp"

#include <algorithm>
#include <cmath>
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

namespace {

// Layers of Purpose::negative_links; 0 is that of the negatives of a store, whose step is 0.
constexpr std::uint32_t first_ends = 1, second_ends = 2;

sampling::PackedIds packed(std::span<std::int64_t const> ids, std::int64_t limit) {
  sampling::PackedIds result(limit, std::ssize(ids));
  for (std::size_t i = 0; i < ids.size(); ++i)
    result.set(i, ids[i]);
  return result;
}

void sort_rows(graph::CsrBlock& block) {
  for (std::size_t row = 0; row + 1 < block.row_offsets.size(); ++row)
    std::sort(block.columns.begin() + block.row_offsets[row],
              block.columns.begin() + block.row_offsets[row + 1]);
}

} // namespace

NegativeLinks::NegativeLinks(graph::CsrBlock block, std::vector<std::int64_t> row_ids,
                             std::span<std::int64_t const> column_ids, std::int64_t num_vertices,
                             std::int64_t num_edges, std::uint64_t seed)
    : block_(std::move(block)),
      row_ids_(std::move(row_ids)),
      columns_(packed(column_ids, num_vertices)),
      num_vertices_(static_cast<std::uint64_t>(num_vertices)),
      num_edges_(static_cast<std::uint64_t>(num_edges)),
      seed_(seed) {
  block_.values = {};
  sort_rows(block_);
}

LinkLists const& NegativeLinks::draw(std::uint64_t epoch) {
  using runtime::Purpose;
  using runtime::RandomStream;
  runtime::KeyedBijection const order(num_vertices_,
                                      RandomStream(seed_, Purpose::negative_links, epoch, first_ends).key());
  RandomStream const stream(seed_, Purpose::negative_links, epoch, second_ends);
  drawn_.offsets.assign(1, 0);
  drawn_.columns.clear();
  for (std::size_t row = 0; row < row_ids_.size(); ++row) {
    auto const u = static_cast<std::uint64_t>(row_ids_[row]);
    for (auto k = order.inverse(u); k < num_edges_; k += num_vertices_) {
      auto w = stream.integer(num_vertices_ - 1, k);
      if (w >= u) ++w; // the others than u
      auto const column = columns_.find(static_cast<std::int64_t>(w));
      if (column >= 0 && !is_edge(row, column)) drawn_.columns.push_back(column);
    }
    drawn_.offsets.push_back(drawn_.size());
  }
  return drawn_;
}

bool NegativeLinks::is_edge(std::size_t row, std::int32_t column) const {
  return std::binary_search(block_.columns.begin() + block_.row_offsets[row],
                            block_.columns.begin() + block_.row_offsets[row + 1], column);
}

std::int64_t NegativeLinks::mean_count(std::int64_t num_rows, std::int64_t num_columns,
                                       std::int64_t num_vertices, std::int64_t num_edges) {
  auto const share_of = [&](std::int64_t part) {
    return static_cast<double>(part) / static_cast<double>(num_vertices);
  };
  return static_cast<std::int64_t>(static_cast<double>(num_edges) * share_of(num_rows) *
                                   share_of(num_columns));
}

std::int64_t NegativeLinks::capacity(std::int64_t mean_count) {
  constexpr double deviations = 6;
  return mean_count + static_cast<std::int64_t>(deviations * std::sqrt(static_cast<double>(mean_count))) + 16;
}

std::int64_t NegativeLinks::num_bytes(std::int64_t num_rows, std::int64_t num_columns,
                                      std::int64_t num_entries, std::int64_t num_vertices) {
  constexpr auto id_bytes = static_cast<std::int64_t>(sizeof(std::int64_t));
  auto const of_block =
      (num_rows + 1) * id_bytes + num_entries * static_cast<std::int64_t>(sizeof(std::int32_t));
  return of_block + num_rows * id_bytes + sampling::KeyTable::bytes(num_vertices, num_columns);
}

} // namespace orthant::models
