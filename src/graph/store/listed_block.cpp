// SPDX-License-Identifier: Apache-2.0
#include "graph/store/listed_block.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

namespace orthant::graph {
namespace {

/// Entries that arrive in pieces of some columns, each with the place of its column in the list.
class ListedEntries {
 public:
  explicit ListedEntries(std::int64_t num_rows) : num_rows_(static_cast<std::size_t>(num_rows)) {}

  void add(CsrBlock const& piece, std::int64_t first_row, std::vector<std::int32_t> const& place_of_column) {
    has_values_ = has_values_ || !piece.values.empty();
    for (std::size_t row = 0; row + 1 < piece.row_offsets.size(); ++row)
      for (auto k = static_cast<std::size_t>(piece.row_offsets[row]);
           k < static_cast<std::size_t>(piece.row_offsets[row + 1]); ++k)
        if (auto const place = place_of_column[static_cast<std::size_t>(piece.columns[k])]; place >= 0)
          entries_.push_back({first_row + static_cast<std::int64_t>(row), place,
                              piece.values.empty() ? 1.0F : piece.values[k]});
  }

  /// Rows ascend, and columns within a row. Takes the entries.
  [[nodiscard]] CsrBlock block(std::int64_t num_columns) && {
    CsrBlock block;
    block.rows = {0, static_cast<std::int64_t>(num_rows_)};
    block.columns_range = {0, num_columns};
    block.row_offsets.assign(num_rows_ + 1, 0);
    for (auto const& entry : entries_)
      ++block.row_offsets[static_cast<std::size_t>(entry.row) + 1];
    std::partial_sum(block.row_offsets.begin(), block.row_offsets.end(), block.row_offsets.begin());
    sort_by_row(block.row_offsets);
    for (auto const& entry : entries_) {
      block.columns.push_back(entry.column);
      if (has_values_) block.values.push_back(entry.value);
    }
    return block;
  }

 private:
  struct Entry {
    std::int64_t row;
    std::int32_t column;
    float value;
  };
  static_assert(2 * sizeof(Entry) == listed_entry_bytes);

  /// Counting by rows, then columns row by row.
  void sort_by_row(std::vector<std::int64_t> const& offsets) {
    std::vector<Entry> sorted(entries_.size());
    auto next = offsets;
    for (auto const& entry : entries_)
      sorted[static_cast<std::size_t>(next[static_cast<std::size_t>(entry.row)]++)] = entry;
    for (std::size_t row = 0; row < num_rows_; ++row)
      std::ranges::sort(std::span(sorted).subspan(static_cast<std::size_t>(offsets[row]),
                                                  static_cast<std::size_t>(offsets[row + 1] - offsets[row])),
                        {}, &Entry::column);
    entries_ = std::move(sorted);
  }

  std::size_t num_rows_;
  std::vector<Entry> entries_;
  bool has_values_ = false;
};

/// Columns are read in slabs of about that many entries, and of no more columns.
constexpr std::int64_t entries_per_slab = std::int64_t{1} << 22;
constexpr std::int64_t columns_per_slab = std::int64_t{1} << 20;

/// Ranges of columns of the stored matrix that hold all of the listed ones.
Ranges stored_columns(graph::StoreFacts const& facts, Ranges const& rows, Ranges const& columns) {
  if (!facts.has_two_orders()) return columns;
  auto const n = facts.num_vertices;
  auto const entries = static_cast<double>(facts.num_entries + n) * static_cast<double>(total_size(rows)) /
                       static_cast<double>(std::max<std::int64_t>(n, 1));
  auto const num_slabs = std::clamp<std::int64_t>(
      std::max(static_cast<std::int64_t>(entries) / entries_per_slab, n / columns_per_slab) + 1, 1,
      std::max<std::int64_t>(n, 1));
  Ranges slabs;
  for (std::int64_t i = 0; i < num_slabs; ++i)
    slabs.push_back(runtime::balanced_range(n, num_slabs, i));
  return slabs;
}

/// For each column of a range of the stored matrix its place in the list, or -1.
std::vector<std::int32_t> places_of(GraphStore const& store, ListPlaces const& list, Range columns) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(columns.size()));
  if (store.facts().has_two_orders())
    positions = store.read_other_positions(Order::p2, columns);
  else
    std::iota(positions.begin(), positions.end(), columns.begin);
  std::vector<std::int32_t> places(positions.size());
  std::ranges::transform(positions, places.begin(),
                         [&](std::int64_t position) { return static_cast<std::int32_t>(list(position)); });
  return places;
}

} // namespace

std::int64_t total_size(Ranges const& ranges) {
  return std::accumulate(ranges.begin(), ranges.end(), std::int64_t{0},
                         [](std::int64_t sum, Range const& range) { return sum + range.size(); });
}

ListPlaces::ListPlaces(Ranges const& ranges) {
  auto begin = std::int64_t{0};
  for (auto const& range : ranges) {
    sorted_.push_back({range, begin});
    begin += range.size();
  }
  std::ranges::sort(sorted_, {}, [](Part const& part) { return part.range.begin; });
}

std::int64_t ListPlaces::operator()(std::int64_t position) const {
  auto const after =
      std::ranges::upper_bound(sorted_, position, {}, [](Part const& part) { return part.range.begin; });
  if (after == sorted_.begin()) return -1;
  auto const& part = *std::prev(after);
  return part.range.contains(position) ? part.place + position - part.range.begin : -1;
}

CsrBlock read_listed_block(GraphStore const& store, Ranges const& rows, Ranges const& columns,
                           SelfLoops self_loops) {
  ORTHANT_REQUIRE(total_size(columns) <= std::int64_t{1} << 31, total_size(columns), " columns in a block");
  ListPlaces const list(columns);
  ListedEntries entries(total_size(rows));
  for (auto const& stored : stored_columns(store.facts(), rows, columns)) {
    auto const places = places_of(store, list, stored);
    auto first_row = std::int64_t{0};
    for (auto const& range : rows) {
      entries.add(store.read_block(Parity::even, range, stored, self_loops), first_row, places);
      first_row += range.size();
    }
  }
  return std::move(entries).block(total_size(columns));
}

Scales read_listed_scales(GraphStore const& store, Ranges const& rows, Ranges const& columns) {
  Scales scales;
  auto const append = [](std::vector<double>& to, std::vector<double> const& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  for (auto const& range : rows)
    append(scales.rows, store.read_scales(Parity::even, range, {0, 0}).rows);
  for (auto const& range : columns)
    append(scales.columns, store.read_scales(Parity::odd, {0, 0}, range).columns);
  return scales;
}

} // namespace orthant::graph
