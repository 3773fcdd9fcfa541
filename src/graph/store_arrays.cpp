// SPDX-License-Identifier: Apache-2.0
#include "graph/store_arrays.hpp"

#include "graph/store_writer.hpp"
#include "graph/vertex_owners.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <utility>

namespace orthant::graph {

using runtime::Hdf5File;
using runtime::Hdf5Type;
using runtime::throw_user;

namespace {

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

template<class T>
std::vector<T> read_row(Hdf5File const& file, std::string const& name, std::int64_t row, Range wanted) {
  std::vector<T> data(index(wanted.size()));
  if (file.extents(name).size() == 2)
    file.read(name, {row, wanted.begin}, {1, wanted.size()}, std::span<T>(data));
  else
    file.read(name, {wanted.begin}, {wanted.size()}, std::span<T>(data));
  return data;
}

[[noreturn]] void report_damage(Hdf5File const& file, std::string const& name, std::string const& place) {
  throw_user("{} is damaged: wrong checksum in {} ({}); partition the graph again", file.name(), name, place);
}

/// Compares the chunks that lie wholly in `data`, whose first element is number `begin` of `length`.
template<class T>
void check_chunks(Hdf5File const& file, std::string const& name, std::int64_t row, std::int64_t begin,
                  std::int64_t length, std::span<T const> data) {
  auto const end = begin + static_cast<std::int64_t>(data.size());
  auto const first = (begin + elements_per_checksum - 1) / elements_per_checksum;
  auto const last = end == length ? num_checksums(length) : end / elements_per_checksum;
  if (first >= last) return;
  auto const sums = read_row<std::uint32_t>(file, checksums_of(name), row, {first, last});
  for (auto chunk = first; chunk < last; ++chunk) {
    auto const from = chunk * elements_per_checksum - begin;
    auto const count = std::min(elements_per_checksum, length - chunk * elements_per_checksum);
    if (crc32_of(std::as_bytes(data.subspan(index(from), index(count)))) != sums[index(chunk - first)])
      report_damage(file, name, fmt::format("elements from {}", chunk * elements_per_checksum));
  }
}

/// The tables of one row of tiles, columns [tile_columns.begin, tile_columns.end).
struct TileRow {
  std::int64_t begin = 0;             // of the tiles' entries in the matrix's array
  std::vector<std::uint32_t> offsets; // [tiles + 1], from `begin`'s row of tiles
  std::vector<std::uint32_t> sums;    // [tiles]
};

class TiledMatrix {
 public:
  TiledMatrix(Hdf5File const& file, std::string group, std::int64_t num_rows, std::int64_t num_columns)
      : file_(file),
        group_(std::move(group)) {
    auto const parts = file_.extents(group_ + "/tile_checksums");
    if (parts.size() != 2 || parts[0] < 1 || parts[1] < 1)
      throw_user("{} is damaged: {} has no tiles", file_.name(), group_);
    grid_ = {{num_rows, parts[0]}, {num_columns, parts[1]}};
    num_entries_ = file_.extents(group_ + "/entries").at(0);
    has_values_ = file_.contains(group_ + "/values");
  }

  [[nodiscard]] TileGrid const& grid() const { return grid_; }
  [[nodiscard]] bool has_values() const { return has_values_; }

  /// Reads the tables of a rectangle of tiles.
  [[nodiscard]] std::vector<TileRow> read_tables(Range tile_rows, Range tile_columns) const {
    auto const row_offsets = read_checked<std::int64_t>(file_, group_ + "/tile_row_offsets", 0,
                                                        {tile_rows.begin, tile_rows.end + 1});
    std::vector<TileRow> rows;
    for (auto i = tile_rows.begin; i < tile_rows.end; ++i) {
      TileRow row;
      row.begin = row_offsets[index(i - tile_rows.begin)];
      row.offsets = read_checked<std::uint32_t>(file_, group_ + "/tile_offsets", i,
                                                {tile_columns.begin, tile_columns.end + 1});
      row.sums = read_checked<std::uint32_t>(file_, group_ + "/tile_checksums", i, tile_columns);
      bool const is_sound = row.begin >= 0 && std::is_sorted(row.offsets.begin(), row.offsets.end()) &&
                            row.begin + row.offsets.back() <= num_entries_;
      if (!is_sound) throw_user("{} is damaged: {}/tile_offsets, row {}", file_.name(), group_, i);
      rows.push_back(std::move(row));
    }
    return rows;
  }

  /// Reads the entries of the tiles of one table and compares their checksums.
  void read_entries(TileRow const& row, std::int64_t tile_row, std::int64_t first_tile_column,
                    std::vector<std::uint32_t>& packed, std::vector<float>& values) const {
    auto const begin = row.begin + row.offsets.front();
    auto const count = std::int64_t{row.offsets.back()} - row.offsets.front();
    packed.resize(index(count));
    file_.read(group_ + "/entries", {begin}, {count}, std::span<std::uint32_t>(packed));
    if (has_values_) {
      values.resize(index(count));
      file_.read(group_ + "/values", {begin}, {count}, std::span<float>(values));
    }
    for (std::size_t j = 0; j < row.sums.size(); ++j) {
      auto const from = row.offsets[j] - row.offsets.front();
      auto const size = row.offsets[j + 1] - row.offsets[j];
      auto sum = crc32_of(std::as_bytes(std::span(packed).subspan(from, size)));
      if (has_values_) sum = crc32_of(std::as_bytes(std::span(values).subspan(from, size)), sum);
      if (sum != row.sums[j])
        report_damage(file_, group_ + "/entries",
                      fmt::format("tile {},{}", tile_row, first_tile_column + static_cast<std::int64_t>(j)));
    }
  }

 private:
  Hdf5File const& file_;
  std::string group_;
  TileGrid grid_;
  std::int64_t num_entries_ = 0;
  bool has_values_ = false;
};

/// Compares the checksums of the chunks [chunks.begin, chunks.end) of a row, a bounded piece at a time.
template<class T>
void verify_chunks(Hdf5File const& file, std::string const& name, std::int64_t row, Range chunks,
                   std::int64_t length) {
  constexpr std::int64_t chunks_at_once = 1024;
  for (auto chunk = chunks.begin; chunk < chunks.end; chunk += chunks_at_once) {
    auto const end = std::min(chunks.end, chunk + chunks_at_once);
    Range const piece{chunk * elements_per_checksum, std::min(length, end * elements_per_checksum)};
    auto const data = read_row<T>(file, name, row, piece);
    check_chunks(file, name, row, piece.begin, length, std::span<T const>(data));
  }
}

template<class T>
void verify_array(Hdf5File const& file, std::string const& name, int part, int num_parts) {
  auto const extents = file.extents(name);
  auto const num_rows = extents.size() == 2 ? extents[0] : 1;
  auto const length = extents.back();
  auto const chunks = runtime::balanced_range(num_checksums(length), num_parts, part);
  for (std::int64_t row = 0; row < num_rows; ++row)
    verify_chunks<T>(file, name, row, chunks, length);
}

} // namespace

template<class T>
std::vector<T> read_checked(Hdf5File const& file, std::string const& name, std::int64_t row, Range wanted) {
  auto const length = file.extents(name).back();
  if (wanted.begin < 0 || wanted.end > length || wanted.begin > wanted.end)
    throw_user("{} is damaged: {} holds {} elements, [{}, {}) were expected", file.name(), name, length,
               wanted.begin, wanted.end);
  // Worth 2 % more to read, but no more.
  constexpr std::int64_t long_range = 100 * elements_per_checksum;
  auto range = wanted;
  if (wanted.size() >= long_range) {
    range.begin -= range.begin % elements_per_checksum;
    range.end = std::min(length, num_checksums(range.end) * elements_per_checksum);
  }
  auto data = read_row<T>(file, name, row, range);
  check_chunks(file, name, row, range.begin, length, std::span<T const>(data));
  data.resize(index(wanted.end - range.begin));
  data.erase(data.begin(), data.begin() + (wanted.begin - range.begin));
  return data;
}

template std::vector<std::int8_t> read_checked(Hdf5File const&, std::string const&, std::int64_t, Range);
template std::vector<std::uint8_t> read_checked(Hdf5File const&, std::string const&, std::int64_t, Range);
template std::vector<std::int32_t> read_checked(Hdf5File const&, std::string const&, std::int64_t, Range);
template std::vector<std::uint32_t> read_checked(Hdf5File const&, std::string const&, std::int64_t, Range);
template std::vector<std::int64_t> read_checked(Hdf5File const&, std::string const&, std::int64_t, Range);
template std::vector<float> read_checked(Hdf5File const&, std::string const&, std::int64_t, Range);
template std::vector<double> read_checked(Hdf5File const&, std::string const&, std::int64_t, Range);

CsrBlock read_tiles(Hdf5File const& file, std::string const& group, Range rows, Range columns,
                    std::int64_t num_rows, std::int64_t num_columns) {
  CsrBlock block;
  block.rows = rows;
  block.columns_range = columns;
  block.row_offsets.assign(index(rows.size() + 1), 0);
  if (rows.size() <= 0 || columns.size() <= 0) return block;

  TiledMatrix const matrix(file, group, num_rows, num_columns);
  auto const& grid = matrix.grid();
  auto const tile_rows = grid.rows.parts_of(rows);
  auto const tile_columns = grid.columns.parts_of(columns);
  auto const tables = matrix.read_tables(tile_rows, tile_columns);

  std::int64_t most = 0;
  for (auto const& row : tables)
    most += std::int64_t{row.offsets.back()} - row.offsets.front();
  block.columns.reserve(index(most));
  if (matrix.has_values()) block.values.reserve(index(most));

  std::vector<std::uint32_t> packed;
  std::vector<float> values;
  std::vector<std::int64_t> next;
  for (auto tile_row = tile_rows.begin; tile_row < tile_rows.end; ++tile_row) {
    auto const& row = tables[index(tile_row - tile_rows.begin)];
    matrix.read_entries(row, tile_row, tile_columns.begin, packed, values);
    // Rows of this row of tiles that are wanted. Tiles come by columns, each sorted by row: counting the rows
    // first puts every row together with its columns ascending.
    auto const corner = grid.rows.begin(tile_row);
    auto const visit = [&](auto&& on_entry) {
      for (std::size_t j = 0; j < row.sums.size(); ++j) {
        auto const column_corner = grid.columns.begin(tile_columns.begin + static_cast<std::int64_t>(j));
        for (auto k = row.offsets[j]; k < row.offsets[j + 1]; ++k) {
          auto const at = k - row.offsets.front();
          auto const entry = unpack(packed[at]);
          auto const global_row = corner + entry.row;
          auto const column = column_corner + entry.column;
          if (rows.contains(global_row) && columns.contains(column))
            on_entry(index(global_row - rows.begin), column - columns.begin, at);
        }
      }
    };
    auto const first = std::max(corner, rows.begin) - rows.begin;
    auto const last = std::min(grid.rows.begin(tile_row + 1), rows.end) - rows.begin;
    visit([&](std::size_t r, std::int64_t, std::uint32_t) { ++block.row_offsets[r + 1]; });
    for (auto r = first; r < last; ++r)
      block.row_offsets[index(r + 1)] += block.row_offsets[index(r)];
    next.assign(block.row_offsets.begin() + first, block.row_offsets.begin() + last);
    block.columns.resize(index(block.row_offsets[index(last)]));
    if (matrix.has_values()) block.values.resize(block.columns.size());
    visit([&](std::size_t r, std::int64_t column, std::uint32_t at) {
      auto const place = index(next[r - index(first)]++);
      block.columns[place] = static_cast<std::int32_t>(column);
      if (matrix.has_values()) block.values[place] = values[at];
    });
  }
  return block;
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
  std::vector<std::int64_t> next(result.row_offsets.begin(), result.row_offsets.end() - 1);
  for (std::int64_t row = 0; row < block.rows.size(); ++row)
    for (auto k = block.row_offsets[index(row)]; k < block.row_offsets[index(row + 1)]; ++k) {
      auto const place = index(next[index(block.columns[index(k)])]++);
      result.columns[place] = static_cast<std::int32_t>(row);
      if (!block.values.empty()) result.values[place] = block.values[index(k)];
    }
  return result;
}

void verify_part(Hdf5File const& file, int part, int num_parts) {
  for (auto const& name : file.array_names()) {
    if (name.starts_with("/checksums/") || name.ends_with("/values")) continue; // the latter with its entries
    if (auto const tables = name.rfind("/entries"); tables != std::string::npos) {
      auto const group = name.substr(0, tables);
      // The extents of the matrix do not matter here, as no entry is unpacked.
      TiledMatrix const matrix(file, group, 1, 1);
      auto const rows = runtime::balanced_range(matrix.grid().rows.num_parts, num_parts, part);
      std::vector<std::uint32_t> packed;
      std::vector<float> values;
      for (auto i = rows.begin; i < rows.end; ++i)
        for (auto const& row : matrix.read_tables({i, i + 1}, {0, matrix.grid().columns.num_parts}))
          matrix.read_entries(row, i, 0, packed, values);
      continue;
    }
    if (!file.contains(checksums_of(name)))
      throw_user("{} is damaged: {} has no checksums", file.name(), name);
    switch (file.type(name)) {
    case Hdf5Type::int8:
      verify_array<std::int8_t>(file, name, part, num_parts);
      break;
    case Hdf5Type::uint8:
      verify_array<std::uint8_t>(file, name, part, num_parts);
      break;
    case Hdf5Type::int32:
      verify_array<std::int32_t>(file, name, part, num_parts);
      break;
    case Hdf5Type::uint32:
      verify_array<std::uint32_t>(file, name, part, num_parts);
      break;
    case Hdf5Type::int64:
      verify_array<std::int64_t>(file, name, part, num_parts);
      break;
    case Hdf5Type::float32:
      verify_array<float>(file, name, part, num_parts);
      break;
    case Hdf5Type::float64:
      verify_array<double>(file, name, part, num_parts);
      break;
    case Hdf5Type::uint16:
      verify_array<std::uint16_t>(file, name, part, num_parts);
      break;
    }
  }
}

} // namespace orthant::graph
