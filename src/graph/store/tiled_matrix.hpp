#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Reads a matrix of an open store tile by tile. All results have been checked: the tables against each other and against the number of
// entries; the entries against their checksums, the extents of their tile and the order that readers rely on.

#include "graph/store/distribution.hpp"
#include "graph/store/store_file.hpp"
#include "graph/store/store_reader.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace orthant::graph {

/// The tables of some adjacent tiles of one tile row.
struct TileRow {
  std::int64_t tile_row = 0;
  Range tile_columns;
  std::int64_t begin = 0;                  // first entry of the tile row in the arrays of entries
  std::vector<std::uint32_t> offsets;      // [tiles + 1], relative to `begin`
  std::vector<std::uint32_t> sums;         // [tiles]
  std::vector<std::uint32_t> feature_sums; // [tiles], or empty

  [[nodiscard]] std::int64_t num_entries() const {
    return std::int64_t{offsets.back()} - std::int64_t{offsets.front()};
  }
};

/// Entries of adjacent tiles, as they are stored.
struct TileEntries {
  std::vector<std::uint32_t> packed;    // by tiles; within a tile by rows, then columns
  std::vector<float> values;            // empty if all are 1
  std::vector<std::uint16_t> relations; // empty if entries have no relations
  std::vector<float> features;          // [entries x num_features()]
};

class TiledMatrix {
 public:
  /// Borrows the file, which must outlive the matrix.
  TiledMatrix(StoreFile const& file, TiledGroup group);

  [[nodiscard]] TileGrid const& grid() const { return grid_; }
  [[nodiscard]] bool has_values() const { return group_.has_values; }
  [[nodiscard]] bool has_relations() const { return group_.num_relations > 0; }
  [[nodiscard]] std::int64_t num_features() const { return group_.num_edge_features; }
  [[nodiscard]] std::string const& name() const { return group_.group; }

  [[nodiscard]] TileRow read_table(std::int64_t tile_row, Range tile_columns) const;
  void read_entries(TileRow const& table, TileEntries& entries) const;

  /// The rectangle in CSR. Columns ascend within a row, and relations within an entry's place.
  [[nodiscard]] CsrBlock read(Range rows, Range columns) const;

  /// Compares the checksums of the tables of one part of the file.
  void check_tables(int part, int num_parts) const;

 private:
  [[noreturn]] void report(std::string const& array, std::string const& what) const;
  void read_features(TileRow const& table, Range entries, std::vector<float>& features) const;
  void check_tile(TileRow const& table, std::int64_t tile_column,
                  std::span<std::uint32_t const> packed) const;

  StoreFile const& file_;
  TiledGroup group_;
  TileGrid grid_;
};

/// The transpose; rows and columns_range are exchanged.
[[nodiscard]] CsrBlock transposed(CsrBlock const& block);

/// Replaces or removes the entries where a vertex meets itself. selves[r] is their column, or outside the block. `means`: features of added
/// ones, [rows x features].
[[nodiscard]] CsrBlock with_self_loops(CsrBlock const& block, std::span<std::int64_t const> selves,
                                       SelfLoops self_loops, std::vector<double> const& means);

} // namespace orthant::graph
