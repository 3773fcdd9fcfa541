// SPDX-License-Identifier: Apache-2.0
#include "graph/store/listed_block.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace orthant::graph {
namespace {

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// Entries that arrive in pieces: ranges of rows, each slab by slab of columns. What is listed of a piece is kept, in rows; then the rows are
/// put together.
class ListedEntries {
 public:
  explicit ListedEntries(std::int64_t num_rows) { block_.row_offsets.assign(index(num_rows + 1), 0); }

  void add(CsrBlock const& read, std::int64_t first_row, std::vector<std::int32_t> const& place_of_column) {
    if (read.rows.size() == 0) return;
    auto const is_listed = [&](std::int32_t column) { return place_of_column[index(column)] >= 0; };
    auto const count = index(std::ranges::count_if(read.columns, is_listed));
    Piece piece{.first_row = first_row};
    piece.row_ends.reserve(read.row_offsets.size());
    piece.columns.reserve(count);
    if (!read.values.empty()) piece.values.reserve(count);
    for (std::size_t row = 0; row + 1 < read.row_offsets.size(); ++row) {
      for (auto k = index(read.row_offsets[row]); k < index(read.row_offsets[row + 1]); ++k) {
        if (!is_listed(read.columns[k])) continue;
        piece.columns.push_back(place_of_column[index(read.columns[k])]);
        if (!read.values.empty()) piece.values.push_back(read.values[k]);
      }
      piece.row_ends.push_back(piece.columns.size());
      block_.row_offsets[index(first_row) + row + 1] += static_cast<std::int64_t>(piece.num_of(row));
    }
    pieces_.push_back(std::move(piece));
  }

  /// Rows ascend, and columns within a row. Takes the entries.
  [[nodiscard]] CsrBlock block(std::int64_t num_columns) && {
    auto const num_rows = block_.row_offsets.size() - 1;
    block_.rows = {0, static_cast<std::int64_t>(num_rows)};
    block_.columns_range = {0, num_columns};
    std::partial_sum(block_.row_offsets.begin(), block_.row_offsets.end(), block_.row_offsets.begin());
    auto const num_entries = index(block_.row_offsets.back());
    auto const has_values = std::ranges::any_of(pieces_, [](Piece const& p) { return !p.values.empty(); });
    block_.columns.reserve(num_entries);
    if (has_values) block_.values.reserve(num_entries);
    std::ranges::stable_sort(pieces_, {}, &Piece::first_row);
    std::vector<std::pair<std::int32_t, float>> entries; // of a row
    for (auto group = pieces_.begin(); group != pieces_.end();) {
      auto const end =
          std::find_if(group, pieces_.end(), [&](Piece const& p) { return p.first_row != group->first_row; });
      for (std::size_t row = 0; row < group->row_ends.size(); ++row) {
        entries.clear();
        std::for_each(group, end, [&](Piece const& piece) { piece.append_row(row, entries); });
        std::ranges::sort(entries, {}, &std::pair<std::int32_t, float>::first);
        for (auto const& [column, value] : entries) {
          block_.columns.push_back(column);
          if (has_values) block_.values.push_back(value);
        }
      }
      group = end;
    }
    return std::move(block_);
  }

 private:
  struct Piece {
    std::int64_t first_row = 0;
    std::vector<std::size_t> row_ends{};
    std::vector<std::int32_t> columns{}; // places in the list
    std::vector<float> values{};         // empty: all 1

    [[nodiscard]] std::size_t begin_of(std::size_t row) const { return row == 0 ? 0 : row_ends[row - 1]; }
    [[nodiscard]] std::size_t num_of(std::size_t row) const { return row_ends[row] - begin_of(row); }
    void append_row(std::size_t row, std::vector<std::pair<std::int32_t, float>>& entries) const {
      for (auto k = begin_of(row); k < row_ends[row]; ++k)
        entries.emplace_back(columns[k], values.empty() ? 1.0F : values[k]);
    }
  };
  static_assert(sizeof(std::int32_t) + sizeof(float) == listed_entry_bytes);

  std::vector<Piece> pieces_;
  CsrBlock block_;
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
