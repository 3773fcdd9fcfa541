// SPDX-License-Identifier: Apache-2.0
#include "graph/store/listed_block.hpp"

#include "runtime/error.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

namespace orthant::graph {
namespace {

using runtime::index;

/// Collects entries from blocks of some rows and columns. Keeps those whose row and column are in the lists, and finally sorts them by row.
class ListedEntries {
 public:
  explicit ListedEntries(std::int64_t num_rows) { block_.row_offsets.assign(index(num_rows + 1), 0); }

  void add(CsrBlock const& read, std::int64_t first_row, std::vector<std::int32_t> const& place_of_column) {
    auto const is_listed = [&](std::int32_t column) { return place_of_column[index(column)] >= 0; };
    auto const count = index(std::ranges::count_if(read.columns, is_listed));
    auto& piece = pieces_.emplace_back();
    piece.rows.reserve(count);
    piece.columns.reserve(count);
    if (!read.values.empty()) piece.values.reserve(count);
    if (!read.relations.empty()) piece.relations.reserve(count);
    piece.features.reserve(count * index(read.num_features));
    for (std::size_t row = 0; row + 1 < read.row_offsets.size(); ++row)
      for (auto k = index(read.row_offsets[row]); k < index(read.row_offsets[row + 1]); ++k) {
        if (!is_listed(read.columns[k])) continue;
        piece.rows.push_back(static_cast<std::int32_t>(first_row + static_cast<std::int64_t>(row)));
        piece.columns.push_back(place_of_column[index(read.columns[k])]);
        if (!read.values.empty()) piece.values.push_back(read.values[k]);
        if (!read.relations.empty()) piece.relations.push_back(read.relations[k]);
        auto const from = read.features.begin() + static_cast<std::int64_t>(k) * read.num_features;
        piece.features.insert(piece.features.end(), from, from + read.num_features);
      }
    block_.num_features = read.num_features;
  }

  /// The block with ascending rows, and ascending columns and relations within a row. Consumes the entries.
  [[nodiscard]] CsrBlock block(std::int64_t num_columns) && {
    auto& offsets = block_.row_offsets;
    block_.rows = {0, std::ssize(offsets) - 1};
    block_.columns_range = {0, num_columns};
    for (auto const& piece : pieces_)
      for (auto const row : piece.rows)
        ++offsets[index(row) + 1];
    std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
    block_.columns.resize(index(offsets.back()));
    if (std::ranges::any_of(pieces_, [](Piece const& piece) { return !piece.values.empty(); }))
      block_.values.resize(block_.columns.size());
    if (std::ranges::any_of(pieces_, [](Piece const& piece) { return !piece.relations.empty(); }))
      block_.relations.resize(block_.columns.size());
    auto const width = block_.num_features;
    block_.features.resize(block_.columns.size() * index(width));
    auto next = offsets;
    for (auto& piece : pieces_) {
      for (std::size_t k = 0; k < piece.rows.size(); ++k) {
        auto const place = index(next[index(piece.rows[k])]++);
        block_.columns[place] = piece.columns[k];
        if (!piece.values.empty()) block_.values[place] = piece.values[k];
        if (!piece.relations.empty()) block_.relations[place] = piece.relations[k];
        std::copy_n(piece.features.begin() + static_cast<std::int64_t>(k) * width, width,
                    block_.features.begin() + static_cast<std::int64_t>(place) * width);
      }
      piece = {};
    }
    sort_rows();
    return std::move(block_);
  }

 private:
  struct Piece {
    std::vector<std::int32_t> rows;
    std::vector<std::int32_t> columns;    // indices into the list of columns
    std::vector<float> values;            // empty: all 1
    std::vector<std::uint16_t> relations; // empty: none
    std::vector<double> features;         // [entries x features]
  };
  struct Entry {
    std::int32_t column;
    std::uint16_t relation;
    float value;
  };
  static_assert(3 * sizeof(std::int32_t) + 2 * sizeof(float) == listed_entry_bytes);

  void sort_rows() {
    bool const has_values = !block_.values.empty();
    bool const has_relations = !block_.relations.empty();
    std::vector<Entry> row;
    auto const width = block_.num_features;
    std::vector<std::int64_t> order; // of the entries of a row
    std::vector<double> features;    // of a row
    for (std::size_t r = 0; r + 1 < block_.row_offsets.size(); ++r) {
      auto const begin = index(block_.row_offsets[r]);
      auto const size = index(block_.row_offsets[r + 1]) - begin;
      auto const columns = std::span(block_.columns).subspan(begin, size);
      if (width > 0) { // there is one entry for each column
        auto const first = block_.features.begin() + static_cast<std::int64_t>(begin) * width;
        features.assign(first, first + static_cast<std::int64_t>(size) * width);
        order.resize(size);
        std::iota(order.begin(), order.end(), std::int64_t{0});
        std::ranges::sort(order, {}, [&](std::int64_t k) { return columns[index(k)]; });
        for (std::size_t k = 0; k < size; ++k)
          std::copy_n(features.begin() + order[k] * width, width,
                      first + static_cast<std::int64_t>(k) * width);
      }
      if (!has_values && !has_relations) {
        std::ranges::sort(columns);
        continue;
      }
      row.clear();
      for (auto k = begin; k < begin + size; ++k)
        row.push_back({block_.columns[k], has_relations ? block_.relations[k] : std::uint16_t{0},
                       has_values ? block_.values[k] : 1.0F});
      std::ranges::sort(row, {}, [](Entry const& entry) { return std::pair(entry.column, entry.relation); });
      for (std::size_t k = 0; k < size; ++k) {
        columns[k] = row[k].column;
        if (has_values) block_.values[begin + k] = row[k].value;
        if (has_relations) block_.relations[begin + k] = row[k].relation;
      }
    }
  }

  std::vector<Piece> pieces_;
  CsrBlock block_;
};

/// Columns are read in slabs of about `entries_per_slab` entries, where a feature of an edge counts as an entry, and at most `columns_per_slab`
/// columns.
constexpr std::int64_t entries_per_slab = std::int64_t{1} << 22;
constexpr std::int64_t columns_per_slab = std::int64_t{1} << 20;

/// Number of entries of A and of added self loops in these rows.
std::int64_t num_entries_of(StoreFacts const& facts, std::int64_t num_rows) {
  auto const n = std::max<std::int64_t>(facts.num_vertices, 1);
  return static_cast<std::int64_t>(static_cast<double>(facts.num_entries + n) *
                                   static_cast<double>(num_rows) / static_cast<double>(n));
}

std::int64_t num_slabs_of(StoreFacts const& facts, std::int64_t num_rows) {
  auto const n = facts.num_vertices;
  auto const numbers = num_entries_of(facts, num_rows) * (1 + facts.num_edge_features);
  return std::clamp<std::int64_t>(std::max(numbers / entries_per_slab, n / columns_per_slab) + 1, 1,
                                  std::max<std::int64_t>(n, 1));
}

/// Ranges of columns of the stored matrix that contain all listed columns.
Ranges stored_columns(graph::StoreFacts const& facts, Ranges const& rows, Ranges const& columns) {
  if (!facts.has_two_orders()) return columns;
  auto const n = facts.num_vertices;
  auto const num_slabs = num_slabs_of(facts, total_size(rows));
  Ranges slabs;
  for (std::int64_t i = 0; i < num_slabs; ++i)
    slabs.push_back(runtime::balanced_range(n, num_slabs, i));
  return slabs;
}

/// For each column of a range of the stored matrix, its place in the list, or -1.
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

std::int64_t slab_feature_bytes(StoreFacts const& facts, std::int64_t num_rows) {
  if (!facts.has_two_orders()) return 0;
  constexpr std::int64_t feature_bytes = sizeof(float) + 2 * sizeof(double); // stored, read, with self loops
  return num_entries_of(facts, num_rows) / num_slabs_of(facts, num_rows) * facts.num_edge_features *
         feature_bytes;
}

CsrBlock read_listed_block(GraphStore const& store, Ranges const& rows, Ranges const& columns,
                           SelfLoops self_loops) {
  constexpr auto most = std::int64_t{1} << 31;
  ORTHANT_REQUIRE(total_size(columns) <= most && total_size(rows) <= most, total_size(rows), " rows and ",
                  total_size(columns), " columns in a block");
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
