#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Gathers the entries of this rank's tile rows, four bytes each, then sorts and writes them tile by tile.

#include "graph/chunk_pool.hpp"
#include "graph/exchange.hpp"
#include "graph/store_writer.hpp"
#include "graph/tile_grid.hpp"
#include "runtime/communicator.hpp"
#include "runtime/error.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

namespace orthant::graph {

/// An entry as the tile lists hold it.
struct PatternEntry {
  std::uint32_t packed; // row << 16 | column
  static constexpr float value = 1;
};
struct ValuedEntry {
  std::uint32_t packed;
  float value;
};

/// Whether the values of a matrix are stored: only where some are not 1.
enum class Values : std::uint8_t { always, where_needed };

template<bool has_values>
class TileBuilder {
 public:
  using Entry = std::conditional_t<has_values, ValuedEntry, PatternEntry>;
  /// An entry on its way to its tile's owner.
  struct Sent {
    std::uint32_t tile; // from the owner's first tile
    Entry entry;
  };

  TileBuilder(runtime::Communicator const& comm, TileGrid const& grid, ChunkPool& pool);

  /// Puts the entry in the outbox, to the rank that owns its tile.
  void push(Outbox<Sent>& outbox, std::int64_t row, std::int64_t column, float value) const {
    auto const tile_row = grid_.rows.part_of(row);
    auto const tile_column = grid_.columns.part_of(column);
    auto const owner = rank_of_tile_row(grid_.rows.num_parts, num_ranks_, tile_row);
    auto const first = tile_rows_of_rank(grid_.rows.num_parts, num_ranks_, owner).begin;
    Sent sent;
    sent.tile = static_cast<std::uint32_t>((tile_row - first) * grid_.columns.num_parts + tile_column);
    sent.entry.packed = pack({static_cast<std::uint32_t>(row - grid_.rows.begin(tile_row)),
                              static_cast<std::uint32_t>(column - grid_.columns.begin(tile_column))});
    if constexpr (has_values) sent.entry.value = value;
    outbox.push(owner, sent);
  }
  /// Takes what arrived.
  void add(std::span<Sent const> arrived) {
    for (auto const& sent : arrived)
      tiles_.append(sent.tile, sent.entry);
  }

  /// Called while writing, for every entry of this rank, by rows of tiles, tiles and rows: row, column,
  /// value.
  using OnEntry = std::function<void(std::int64_t row, std::int64_t column, float value)>;

  /// Makes the arrays under `group` and writes the tiles; the lists are empty afterwards. Collective. Returns
  /// whether values were stored.
  bool write(StoreWriter& writer, std::string const& group, Values values, OnEntry const& on_entry,
             std::function<void(double)> const& progress);

 private:
  runtime::Communicator const& comm_;
  int num_ranks_;
  TileGrid grid_;
  Range tile_rows_; // this rank's
  RecordLists<Entry> tiles_;
};

extern template class TileBuilder<false>;
extern template class TileBuilder<true>;

} // namespace orthant::graph
