#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Collects the entries of this rank's tile rows, four bytes each, then sorts and writes them tile by tile.

#include "graph/chunk_pool.hpp"
#include "graph/exchange.hpp"
#include "graph/partition/edge_feature_rows.hpp"
#include "graph/store/distribution.hpp"
#include "graph/store/store_arrays.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/error.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace orthant::graph {

/// An entry in the tile lists.
struct PatternEntry {
  std::uint32_t packed; // row << 16 | column
  static constexpr float value = 1;
};
struct ValuedEntry {
  std::uint32_t packed;
  float value;
};

/// How the values of a matrix are stored: always, only if some of them are not 1, as numbers of relations, or as features of edges.
enum class Values : std::uint8_t { always, where_needed, relations, features };

template<bool has_values>
class TileBuilder {
 public:
  using Entry = std::conditional_t<has_values, ValuedEntry, PatternEntry>;
  /// An entry as it is sent to the owner of its tile.
  struct Sent {
    std::uint32_t tile; // counted from the owner's first tile
    Entry entry;
  };

  TileBuilder(runtime::Communicator const& comm, TileGrid const& grid, ChunkPool& pool);

  /// Rows of this rank.
  [[nodiscard]] Range rows() const {
    return {grid_.rows.begin(tile_rows_.begin), grid_.rows.begin(tile_rows_.end)};
  }
  /// Adds the entry to the outbox for the rank that owns its tile.
  void push(Outbox<Sent>& outbox, std::int64_t row, std::int64_t column, float value) const {
    auto const tile_row = rows_.part_of(row);
    auto const tile_column = columns_.part_of(column);
    auto const [owner, first] = owners_[static_cast<std::size_t>(tile_row)];
    Sent sent;
    sent.tile = static_cast<std::uint32_t>((tile_row - first) * grid_.columns.num_parts + tile_column);
    sent.entry.packed = pack({static_cast<std::uint32_t>(row - rows_.begin(tile_row)),
                              static_cast<std::uint32_t>(column - columns_.begin(tile_column))});
    if constexpr (has_values) sent.entry.value = value;
    outbox.push(owner, sent);
  }
  /// Adds received entries to the tile lists.
  void add(std::span<Sent const> arrived) {
    constexpr std::size_t soon = 32;
    constexpr std::size_t next = 16;
    for (std::size_t i = 0; i < arrived.size(); ++i) {
      if (i + soon < arrived.size()) tiles_.expect_soon(arrived[i + soon].tile);
      if (i + next < arrived.size()) tiles_.expect_next(arrived[i + next].tile);
      tiles_.append(arrived[i].tile, arrived[i].entry);
    }
  }

  /// Like add(), for entries whose values are numbers of features (edge_feature_rows.hpp): the values become places in numbers().
  void add_numbered(std::span<Sent const> arrived) {
    for (auto sent : arrived) {
      if constexpr (has_values) {
        numbers_.push_back(as_number(sent.entry.value));
        sent.entry.value = as_weight(static_cast<std::uint32_t>(numbers_.size() - 1));
      }
      tiles_.append(sent.tile, sent.entry);
    }
  }
  [[nodiscard]] std::span<std::uint32_t const> numbers() const { return numbers_; }
  /// Gives the features of all numbers() to write() of Values::features, [numbers x width]. The numbers are then forgotten.
  void set_features(std::vector<float> features, std::int64_t width) {
    features_ = std::move(features);
    width_ = static_cast<std::size_t>(width);
    numbers_ = {};
  }
  /// The features of an entry by its value, within OnEntry.
  [[nodiscard]] std::span<float const> features_of(float value) const {
    return std::span(features_).subspan(as_number(value) * width_, width_);
  }

  /// Called while writing with row, column and value of every entry of this rank, ordered by tile rows, tiles and rows.
  using OnEntry = std::function<void(std::int64_t row, std::int64_t column, float value)>;

  /// Creates the arrays under `group` and writes the tiles; the lists are then empty. Returns true if values were stored (not those of
  /// relations). Collective.
  bool write(StoreWriter& writer, std::string const& group, Values values, OnEntry const& on_entry,
             std::function<void(double)> const& progress);

 private:
  runtime::Communicator const& comm_;
  int num_ranks_;
  struct Owner {
    int rank;
    std::int64_t first_tile_row; // first tile row of that rank
  };

  TileGrid grid_;
  CutIndex rows_;
  CutIndex columns_;
  std::vector<Owner> owners_; // owner of each tile row
  Range tile_rows_;           // owned by this rank
  RecordLists<Entry> tiles_;
  std::vector<std::uint32_t> numbers_;
  std::vector<float> features_;
  std::size_t width_ = 0; // number of features of an entry
};

extern template class TileBuilder<false>;
extern template class TileBuilder<true>;

} // namespace orthant::graph
