// SPDX-License-Identifier: Apache-2.0
#include "graph/partition/tile_builder.hpp"

#include "graph/crc32.hpp"
#include "graph/radix_sort.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <limits>

namespace orthant::graph {

using runtime::Hdf5Type;
using runtime::host;
using runtime::index;

namespace {

/// Sorts entries with equal row and column by value, because the order in which they arrive depends on the number of ranks.
void sort_repeats_by_value(std::vector<ValuedEntry>& tile) {
  for (std::size_t i = 0; i < tile.size();) {
    auto end = i + 1;
    while (end < tile.size() && tile[end].packed == tile[i].packed)
      ++end;
    std::sort(tile.begin() + static_cast<std::ptrdiff_t>(i), tile.begin() + static_cast<std::ptrdiff_t>(end),
              [](ValuedEntry const& a, ValuedEntry const& b) { return a.value < b.value; });
    i = end;
  }
}

/// Entries of adjacent tiles in the types of the file, until they are written.
struct Pending {
  std::vector<std::uint32_t> packed;
  std::vector<float> weights;           // empty, or as many
  std::vector<std::uint16_t> relations; // empty, or as many
  std::vector<float> features;          // empty, or a row for each

  /// CRC-32 of the entries from `begin` on.
  [[nodiscard]] std::uint32_t checksum(std::size_t begin) const {
    auto sum = crc32_of(std::as_bytes(std::span(packed).subspan(begin)));
    if (!weights.empty()) sum = crc32_of(std::as_bytes(std::span(weights).subspan(begin)), sum);
    if (!relations.empty()) sum = crc32_of(std::as_bytes(std::span(relations).subspan(begin)), sum);
    return sum;
  }
  /// Writes the entries from place `begin` of the arrays of `group` on, and removes them here. Returns the place after them.
  std::int64_t flush(StoreWriter& writer, std::string const& group, std::int64_t begin) {
    writer.write_plain(group + "/entries", begin, std::span<std::uint32_t const>(packed));
    if (!weights.empty()) writer.write_plain(group + "/values", begin, std::span<float const>(weights));
    if (!relations.empty())
      writer.write_plain(group + "/relations", begin, std::span<std::uint16_t const>(relations));
    if (!features.empty()) {
      auto const width = std::ssize(features) / std::ssize(packed);
      writer.write_plain(group + "/features", begin * width, std::span<float const>(features));
    }
    auto const end = begin + static_cast<std::int64_t>(packed.size());
    packed.clear();
    weights.clear();
    relations.clear();
    features.clear();
    return end;
  }
};

} // namespace

template<bool has_values>
TileBuilder<has_values>::TileBuilder(runtime::Communicator const& comm, TileGrid const& grid, ChunkPool& pool)
    : comm_(comm),
      num_ranks_(comm.size()),
      grid_(grid),
      rows_(grid.rows),
      columns_(grid.columns),
      tile_rows_(tile_rows_of_rank(grid.rows.num_parts, comm.size(), comm.rank())),
      tiles_(pool, index(tile_rows_.size() * grid.columns.num_parts)) {
  for (std::int64_t tile_row = 0; tile_row < grid.rows.num_parts; ++tile_row) {
    auto const owner = rank_of_tile_row(grid.rows.num_parts, num_ranks_, tile_row);
    owners_.push_back({owner, tile_rows_of_rank(grid.rows.num_parts, num_ranks_, owner).begin});
  }
  ORTHANT_REQUIRE(tile_rows_.size() * grid.columns.num_parts < std::numeric_limits<std::uint32_t>::max());
}

template<bool has_values>
bool TileBuilder<has_values>::write(StoreWriter& writer, std::string const& group, Values values,
                                    OnEntry const& on_entry, std::function<void(double)> const& progress) {
  auto const num_tile_rows = grid_.rows.num_parts;
  auto const num_tile_columns = grid_.columns.num_parts;

  // The begin of every tile row follows from the counts of all ranks, which are gathered.
  std::vector<std::int64_t> my_counts(index(tile_rows_.size()));
  std::int64_t differs_from_one = 0;
  for (std::int64_t i = 0; i < tile_rows_.size(); ++i)
    for (std::int64_t j = 0; j < num_tile_columns; ++j) {
      auto const tile = index(i * num_tile_columns + j);
      my_counts[index(i)] += tiles_.size(tile);
      if constexpr (has_values)
        tiles_.for_each_piece(tile, [&](std::span<Entry const> piece) {
          for (auto const& entry : piece)
            differs_from_one |= static_cast<std::int64_t>(entry.value != 1);
        });
    }
  std::vector<std::int64_t> counts(index(num_tile_rows));
  std::vector<std::int64_t> rows_of_rank(index(num_ranks_));
  for (int rank = 0; rank < num_ranks_; ++rank)
    rows_of_rank[index(rank)] = tile_rows_of_rank(num_tile_rows, num_ranks_, rank).size();
  runtime::all_gatherv(host, comm_, my_counts, counts, rows_of_rank);
  std::vector<std::int64_t> offsets(index(num_tile_rows + 1));
  for (std::int64_t i = 0; i < num_tile_rows; ++i) {
    ORTHANT_REQUIRE(counts[index(i)] <= std::numeric_limits<std::uint32_t>::max(), "row of tiles with ",
                    counts[index(i)], " entries");
    offsets[index(i + 1)] = offsets[index(i)] + counts[index(i)];
  }
  bool const stores_relations = has_values && values == Values::relations;
  bool const stores_features = has_values && values == Values::features;
  bool const stores_values = has_values && !stores_relations && !stores_features &&
                             (values == Values::always ||
                              runtime::all_reduced(comm_, differs_from_one, runtime::Reduction::max) != 0);

  writer.create_plain_array(group + "/entries", Hdf5Type::uint32, {offsets.back()});
  if (stores_values) writer.create_plain_array(group + "/values", Hdf5Type::float32, {offsets.back()});
  if (stores_relations) writer.create_plain_array(group + "/relations", Hdf5Type::uint16, {offsets.back()});
  if (stores_features) {
    writer.create_plain_array(group + "/features", Hdf5Type::float32,
                              {offsets.back() * static_cast<std::int64_t>(width_)});
    writer.create_array(group + "/tile_feature_checksums", Hdf5Type::uint32,
                        {num_tile_rows, num_tile_columns});
  }
  writer.create_array(group + "/tile_row_offsets", Hdf5Type::int64, {num_tile_rows + 1});
  writer.create_array(group + "/tile_offsets", Hdf5Type::uint32, {num_tile_rows, num_tile_columns + 1});
  writer.create_array(group + "/tile_checksums", Hdf5Type::uint32, {num_tile_rows, num_tile_columns});
  writer.reserve_space();

  runtime::together(comm_, [&] {
    if (comm_.is_root())
      writer.write(group + "/tile_row_offsets", 0, 0, std::span<std::int64_t const>(offsets));

    constexpr std::size_t flush_at = std::size_t{1} << 21; // entries, or features: writes of 8 MiB
    std::vector<Entry> tile;
    std::vector<Entry> scratch;
    Pending pending;
    std::vector<std::uint32_t> tile_offsets(index(num_tile_columns + 1));
    std::vector<std::uint32_t> sums(index(num_tile_columns));
    std::vector<std::uint32_t> feature_sums(index(num_tile_columns));
    auto written = offsets[index(tile_rows_.begin)];

    for (std::int64_t i = 0; i < tile_rows_.size(); ++i) {
      auto const tile_row = tile_rows_.begin + i;
      auto const first_row = grid_.rows.begin(tile_row);
      auto const row_bits = bits_below(static_cast<std::uint64_t>(grid_.rows.size(tile_row)));
      std::uint32_t in_row = 0;
      for (std::int64_t j = 0; j < num_tile_columns; ++j) {
        auto const column_bits = bits_below(static_cast<std::uint64_t>(grid_.columns.size(j)));
        tiles_.drain(index(i * num_tile_columns + j), tile);
        radix_sort(tile, scratch, row_bits + column_bits, [&](Entry const& entry) {
          auto const [row, column] = unpack(entry.packed);
          return std::uint64_t{row} << column_bits | column;
        });
        if constexpr (has_values)
          if (!stores_features) sort_repeats_by_value(tile);
        auto const begin = pending.packed.size();
        auto const begin_of_features = pending.features.size();
        for (auto const& entry : tile) {
          pending.packed.push_back(entry.packed);
          if (stores_values) pending.weights.push_back(entry.value);
          if (stores_relations) pending.relations.push_back(static_cast<std::uint16_t>(entry.value));
          if (stores_features) {
            auto const features = features_of(entry.value);
            pending.features.insert(pending.features.end(), features.begin(), features.end());
          }
          if (on_entry) {
            auto const [row, column] = unpack(entry.packed);
            on_entry(first_row + row, grid_.columns.begin(j) + column, entry.value);
          }
        }
        tile_offsets[index(j)] = in_row;
        in_row += static_cast<std::uint32_t>(tile.size());
        sums[index(j)] = pending.checksum(begin);
        feature_sums[index(j)] =
            crc32_of(std::as_bytes(std::span(pending.features).subspan(begin_of_features)));
      }
      tile_offsets[index(num_tile_columns)] = in_row;
      writer.write(group + "/tile_offsets", tile_row, 0, std::span<std::uint32_t const>(tile_offsets));
      writer.write(group + "/tile_checksums", tile_row, 0, std::span<std::uint32_t const>(sums));
      if (stores_features)
        writer.write(group + "/tile_feature_checksums", tile_row, 0,
                     std::span<std::uint32_t const>(feature_sums));
      if (std::max(pending.packed.size(), pending.features.size()) >= flush_at)
        written = pending.flush(writer, group, written);
      progress(static_cast<double>(i + 1) / static_cast<double>(tile_rows_.size()));
    }
    pending.flush(writer, group, written);
  });
  return stores_values;
}

template class TileBuilder<false>;
template class TileBuilder<true>;

} // namespace orthant::graph
