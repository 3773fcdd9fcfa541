// SPDX-License-Identifier: Apache-2.0
#include "graph/store/tiled_matrix.hpp"

#include "graph/crc32.hpp"
#include "graph/store/store_arrays.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <utility>

namespace orthant::graph {

using runtime::index;
using runtime::throw_user;

TiledMatrix::TiledMatrix(StoreFile const& file, TiledGroup group)
    : file_(file),
      group_(std::move(group)),
      grid_(tile_grid_of(file.catalogue(), group_, file.name())) {}

void TiledMatrix::report(std::string const& array, std::string const& what) const {
  throw_user("{} is damaged: {}{}: {}", file_.name(), group_.group, array, what);
}

TileRow TiledMatrix::read_table(std::int64_t tile_row, Range tile_columns) const {
  auto const ends =
      read_checked<std::int64_t>(file_, group_.group + "/tile_row_offsets", 0, {tile_row, tile_row + 2});
  bool const begins_right = tile_row > 0 || ends[0] == 0;
  bool const ends_right = tile_row + 1 < grid_.rows.num_parts || ends[1] == group_.num_entries;
  if (ends[0] < 0 || ends[0] > ends[1] || ends[1] > group_.num_entries || !begins_right || !ends_right)
    report("/tile_row_offsets", fmt::format("row {} of tiles has the entries [{}, {}) of {}", tile_row,
                                            ends[0], ends[1], group_.num_entries));

  TileRow table;
  table.tile_row = tile_row;
  table.tile_columns = tile_columns;
  table.begin = ends[0];
  table.offsets = read_checked<std::uint32_t>(file_, group_.group + "/tile_offsets", tile_row,
                                              {tile_columns.begin, tile_columns.end + 1});
  table.sums = read_checked<std::uint32_t>(file_, group_.group + "/tile_checksums", tile_row, tile_columns);
  if (num_features() > 0)
    table.feature_sums =
        read_checked<std::uint32_t>(file_, group_.group + "/tile_feature_checksums", tile_row, tile_columns);
  auto const count = ends[1] - ends[0];
  bool const is_first = tile_columns.begin == 0;
  bool const is_last = tile_columns.end == grid_.columns.num_parts;
  bool const fits = std::ranges::is_sorted(table.offsets) && table.offsets.back() <= count &&
                    (!is_first || table.offsets.front() == 0) && (!is_last || table.offsets.back() == count);
  if (!fits)
    report("/tile_offsets", fmt::format("row {} of tiles does not cut its {} entries", tile_row, count));
  return table;
}

void TiledMatrix::read_entries(TileRow const& table, TileEntries& entries) const {
  Range const wanted{table.begin + table.offsets.front(), table.begin + table.offsets.back()};
  entries.packed = file_.read<std::uint32_t>(group_.group + "/entries", 0, wanted);
  if (has_values()) entries.values = file_.read<float>(group_.group + "/values", 0, wanted);
  if (has_relations()) entries.relations = file_.read<std::uint16_t>(group_.group + "/relations", 0, wanted);
  if (num_features() > 0) read_features(table, wanted, entries.features);
  for (std::size_t j = 0; j < table.sums.size(); ++j) {
    auto const from = table.offsets[j] - table.offsets.front();
    auto const size = table.offsets[j + 1] - table.offsets[j];
    auto const packed = std::span<std::uint32_t const>(entries.packed).subspan(from, size);
    auto sum = crc32_of(std::as_bytes(packed));
    if (has_values()) sum = crc32_of(std::as_bytes(std::span(entries.values).subspan(from, size)), sum);
    if (has_relations()) sum = crc32_of(std::as_bytes(std::span(entries.relations).subspan(from, size)), sum);
    auto const tile_column = table.tile_columns.begin + static_cast<std::int64_t>(j);
    if (sum != table.sums[j])
      report_wrong_checksum(file_, group_.group + "/entries",
                            fmt::format("tile {},{}", table.tile_row, tile_column));
    check_tile(table, tile_column, packed);
    if (!has_relations()) continue;
    for (std::size_t k = 1; k < packed.size(); ++k)
      if (packed[k - 1] == packed[k] && entries.relations[from + k - 1] >= entries.relations[from + k])
        report("/relations",
               fmt::format("tile {},{} is not sorted by relations", table.tile_row, tile_column));
  }
  if (has_values())
    require_finite(file_, group_.group + "/values", std::span<float const>(entries.values), wanted.begin);
  if (has_relations())
    require_between(file_, group_.group + "/relations", std::span<std::uint16_t const>(entries.relations),
                    wanted.begin, std::uint16_t{0}, static_cast<std::uint16_t>(group_.num_relations - 1));
}

void TiledMatrix::read_features(TileRow const& table, Range entries, std::vector<float>& features) const {
  auto const name = group_.group + "/features";
  auto const width = num_features();
  features = file_.read<float>(name, 0, {entries.begin * width, entries.end * width});
  for (std::size_t j = 0; j < table.feature_sums.size(); ++j) {
    auto const from = index((table.offsets[j] - table.offsets.front()) * width);
    auto const size = index((table.offsets[j + 1] - table.offsets[j]) * width);
    if (crc32_of(std::as_bytes(std::span(features).subspan(from, size))) != table.feature_sums[j])
      report_wrong_checksum(
          file_, name,
          fmt::format("tile {},{}", table.tile_row, table.tile_columns.begin + static_cast<std::int64_t>(j)));
  }
  require_finite(file_, name, std::span<float const>(features), entries.begin * width);
}

void TiledMatrix::check_tile(TileRow const& table, std::int64_t tile_column,
                             std::span<std::uint32_t const> packed) const {
  if (packed.empty()) return;
  // The entries must be sorted, so that the last one has the largest row.
  std::uint32_t last_column = 0;
  bool is_sorted = true;
  for (std::size_t k = 0; k < packed.size(); ++k) {
    last_column = std::max(last_column, unpack(packed[k]).column);
    is_sorted = is_sorted && (k == 0 || packed[k - 1] <= packed[k]);
  }
  auto const tile = fmt::format("tile {},{}", table.tile_row, tile_column);
  if (!is_sorted) report("/entries", tile + " is not sorted by rows and columns");
  auto const num_rows = grid_.rows.size(table.tile_row);
  auto const num_columns = grid_.columns.size(tile_column);
  auto const last_row = unpack(packed.back()).row;
  if (last_row >= num_rows || last_column >= num_columns)
    report("/entries", fmt::format("{} of {} x {} has an entry in row {} or column {}", tile, num_rows,
                                   num_columns, last_row, last_column));
}

CsrBlock TiledMatrix::read(Range rows, Range columns) const {
  CsrBlock block;
  block.rows = rows;
  block.columns_range = columns;
  block.row_offsets.assign(index(rows.size() + 1), 0);
  if (rows.size() <= 0 || columns.size() <= 0) return block;

  auto const tile_rows = grid_.rows.parts_of(rows);
  auto const tile_columns = grid_.columns.parts_of(columns);
  std::vector<TileRow> tables;
  std::int64_t most = 0;
  for (auto i = tile_rows.begin; i < tile_rows.end; ++i) {
    tables.push_back(read_table(i, tile_columns));
    most += tables.back().num_entries();
  }
  block.columns.reserve(index(most));
  if (has_values()) block.values.reserve(index(most));
  if (has_relations()) block.relations.reserve(index(most));
  auto const width = index(block.num_features = num_features());
  block.features.reserve(index(most) * width);

  TileEntries entries;
  std::vector<std::int64_t> next;
  for (auto const& table : tables) {
    read_entries(table, entries);
    // The requested rows of this tile row. Tiles are stored by columns, and each is sorted by row. Counting the entries of each row first
    // lets the entries be placed by row with ascending columns.
    auto const corner = grid_.rows.begin(table.tile_row);
    auto const visit = [&](auto&& on_entry) {
      for (std::size_t j = 0; j < table.sums.size(); ++j) {
        auto const column_corner = grid_.columns.begin(tile_columns.begin + static_cast<std::int64_t>(j));
        for (auto k = table.offsets[j]; k < table.offsets[j + 1]; ++k) {
          auto const at = k - table.offsets.front();
          auto const entry = unpack(entries.packed[at]);
          auto const global_row = corner + entry.row;
          auto const column = column_corner + entry.column;
          if (rows.contains(global_row) && columns.contains(column))
            on_entry(index(global_row - rows.begin), column - columns.begin, at);
        }
      }
    };
    auto const first = std::max(corner, rows.begin) - rows.begin;
    auto const last = std::min(grid_.rows.begin(table.tile_row + 1), rows.end) - rows.begin;
    visit([&](std::size_t r, std::int64_t, std::uint32_t) { ++block.row_offsets[r + 1]; });
    for (auto r = first; r < last; ++r)
      block.row_offsets[index(r + 1)] += block.row_offsets[index(r)];
    next.assign(block.row_offsets.begin() + first, block.row_offsets.begin() + last);
    block.columns.resize(index(block.row_offsets[index(last)]));
    if (has_values()) block.values.resize(block.columns.size());
    if (has_relations()) block.relations.resize(block.columns.size());
    block.features.resize(block.columns.size() * width);
    visit([&](std::size_t r, std::int64_t column, std::uint32_t at) {
      auto const place = index(next[r - index(first)]++);
      block.columns[place] = static_cast<std::int32_t>(column);
      if (has_values()) block.values[place] = entries.values[at];
      if (has_relations()) block.relations[place] = entries.relations[at];
      for (std::size_t f = 0; f < width; ++f)
        block.features[place * width + f] = static_cast<double>(entries.features[at * width + f]);
    });
  }
  return block;
}

void TiledMatrix::check_tables(int part, int num_parts) const {
  for (auto const* const table : tables_of(group_))
    check_array_part(file_, group_.group + table, part, num_parts);
}

CsrBlock transposed(CsrBlock const& block) {
  CsrBlock result;
  result.rows = block.columns_range;
  result.columns_range = block.rows;
  result.row_offsets.assign(index(result.rows.size() + 1), 0);
  for (auto const column : block.columns)
    ++result.row_offsets[index(column) + 1];
  std::partial_sum(result.row_offsets.begin(), result.row_offsets.end(), result.row_offsets.begin());
  result.columns.resize(block.columns.size());
  result.values.resize(block.values.size());
  result.relations.resize(block.relations.size());
  result.features.resize(block.features.size());
  auto const width = result.num_features = block.num_features;
  std::vector<std::int64_t> next(result.row_offsets.begin(), result.row_offsets.end() - 1);
  for (std::int64_t row = 0; row < block.rows.size(); ++row)
    for (auto k = block.row_offsets[index(row)]; k < block.row_offsets[index(row + 1)]; ++k) {
      auto const place = index(next[index(block.columns[index(k)])]++);
      result.columns[place] = static_cast<std::int32_t>(row);
      if (!block.values.empty()) result.values[place] = block.values[index(k)];
      if (!block.relations.empty()) result.relations[place] = block.relations[index(k)];
      std::copy_n(block.features.begin() + k * width, width,
                  result.features.begin() + static_cast<std::int64_t>(place) * width);
    }
  return result;
}

CsrBlock with_self_loops(CsrBlock const& block, std::span<std::int64_t const> selves, SelfLoops self_loops,
                         std::vector<double> const& means) {
  CsrBlock result;
  result.rows = block.rows;
  result.columns_range = block.columns_range;
  result.row_offsets.reserve(block.row_offsets.size());
  result.row_offsets.push_back(0);
  auto const num_added = self_loops == SelfLoops::added ? selves.size() : 0;
  bool const is_weighted = !block.values.empty();
  result.columns.reserve(block.columns.size() + num_added);
  if (is_weighted) result.values.reserve(block.columns.size() + num_added);
  bool const has_relations = !block.relations.empty() && self_loops == SelfLoops::dropped;
  auto const width = result.num_features = block.num_features;
  result.features.reserve((block.columns.size() + num_added) * index(width));
  auto const put = [&](std::int64_t column, float value, std::vector<double> const& features,
                       std::int64_t place) {
    result.columns.push_back(static_cast<std::int32_t>(column));
    if (is_weighted) result.values.push_back(value);
    auto const from = features.begin() + place * width;
    result.features.insert(result.features.end(), from, from + width);
  };
  for (std::size_t row = 0; row < selves.size(); ++row) {
    auto const self = selves[row] - block.columns_range.begin;
    bool is_due = self_loops == SelfLoops::added && block.columns_range.contains(selves[row]);
    auto const put_self = [&] { put(self, 1, means, static_cast<std::int64_t>(row)); };
    for (auto k = block.row_offsets[row]; k < block.row_offsets[row + 1]; ++k) {
      auto const column = block.columns[index(k)];
      if (is_due && column >= self) {
        put_self();
        is_due = false;
      }
      if (column == self) continue;
      put(column, is_weighted ? block.values[index(k)] : 1.0F, block.features, k);
      if (has_relations) result.relations.push_back(block.relations[index(k)]);
    }
    if (is_due) put_self();
    result.row_offsets.push_back(static_cast<std::int64_t>(result.columns.size()));
  }
  return result;
}

} // namespace orthant::graph
