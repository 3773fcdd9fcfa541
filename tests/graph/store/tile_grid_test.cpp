// SPDX-License-Identifier: Apache-2.0
//
// How a matrix is cut in tiles: pure arithmetic, tried exhaustively on small sizes and with ids near 2^33.
#include "graph/store/distribution.hpp"

#include "graph/chunk_pool.hpp"
#include "graph/partition/tile_builder.hpp"
#include "runtime/range.hpp"

#include <algorithm>
#include <gtest/gtest.h>

namespace orthant::graph {
namespace {

constexpr std::int64_t many_rows = (std::int64_t{1} << 33) + 12345;

TEST(Cut, PartOfInvertsRange) {
  for (std::int64_t count : {1, 2, 5, 97, 240, 1000})
    for (std::int64_t parts = 1; parts <= std::min<std::int64_t>(count, 250); ++parts) {
      Cut const cut{count, parts};
      EXPECT_EQ(cut.begin(0), 0);
      EXPECT_EQ(cut.begin(parts), count);
      CutIndex const quick(cut);
      for (std::int64_t i = 0; i < count; ++i)
        ASSERT_EQ(quick.part_of(i), cut.part_of(i)) << count << ' ' << parts << ' ' << i;
      for (std::int64_t i = 0; i < count; ++i)
        ASSERT_TRUE(cut.range(cut.part_of(i)).contains(i)) << count << ' ' << parts << ' ' << i;
    }
}

TEST(Cut, HoldsNearTwoToThe33) {
  auto const grid = tile_grid_of_topology(many_rows, std::int64_t{1} << 40);
  for (std::int64_t i = 0; i < grid.rows.num_parts; ++i)
    ASSERT_LE(grid.rows.size(i), max_tile_side);
  for (std::int64_t const index :
       {std::int64_t{0}, std::int64_t{1} << 24, std::int64_t{1} << 32, many_rows - 1}) {
    auto const part = grid.rows.part_of(index);
    auto const local = index - grid.rows.begin(part);
    ASSERT_LT(local, max_tile_side);
    auto const entry = unpack(pack({static_cast<std::uint32_t>(local), 0xffff}));
    EXPECT_EQ(grid.rows.begin(part) + entry.row, index);
    EXPECT_EQ(entry.column, 0xffffU);
  }
}

// A block of a balanced cut begins at its tile's corner or less than P rows later, where P divides T.
TEST(Cut, BalancedBlocksBeginAtTiles) {
  Cut const cut{70839, 240};
  for (std::int64_t const p : {1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 16})
    for (std::int64_t j = 0; j < p; ++j) {
      auto const begin = runtime::balanced_range(cut.count, p, j).begin;
      EXPECT_GE(begin, cut.begin(j * 240 / p));
      EXPECT_LT(begin - cut.begin(j * 240 / p), p);
    }
}

TEST(TileGrid, LeavesSixteenEntriesToATile) {
  EXPECT_EQ(tile_grid_of_topology(1'000'000, 2'000'000).rows.num_parts, 240);
  EXPECT_EQ(tile_grid_of_topology(2708, 10556).rows.num_parts, 24);
  EXPECT_EQ(tile_grid_of_topology(1, 0).num_tiles(), 1);
  EXPECT_EQ(tile_grid_of_topology(34, 156).rows.num_parts, 1);
  for (std::int64_t const entries : {0, 100, 10'000, 1'000'000}) {
    auto const grid = tile_grid_of_topology(5000, entries);
    EXPECT_TRUE(grid.num_tiles() == 1 || entries / grid.num_tiles() >= 16);
  }
}

/// Bytes that a rank needs for the entries of its share of the tiles until they are written, in chunks of `chunk_bytes`: the largest share,
/// plus half a chunk per tile.
std::int64_t tile_list_bytes(TileGrid const& grid, std::int64_t num_entries, std::int64_t entry_bytes,
                             std::size_t chunk_bytes, int num_ranks) {
  auto const chunk = static_cast<std::int64_t>(chunk_bytes);
  auto const tiles = tile_rows_of_rank(grid.rows.num_parts, num_ranks, 0).size() * grid.columns.num_parts;
  auto const entries = num_entries / grid.num_tiles() * tiles;
  auto const chunks = entries / (chunk / entry_bytes) + tiles / 2;
  return chunks * (chunk + static_cast<std::int64_t>(sizeof(ChunkPool::Chunk))) +
         tiles * static_cast<std::int64_t>(RecordLists<PatternEntry>::bytes_per_list);
}

// 10^9 vertices, 10^10 edges both ways, on many ranks: arithmetic, no data.
TEST(TileGrid, TablesAndListsStaySmallBesideTheEntries) {
  constexpr std::int64_t num_vertices = 1'000'000'000;
  constexpr std::int64_t num_entries = 20'000'000'000;
  auto const grid = tile_grid_of_topology(num_vertices, num_entries);

  EXPECT_LT(table_bytes(grid), num_entries * 4 / 40);
  auto const chunk = chunk_bytes_for(grid.num_tiles(), num_entries * 4);
  EXPECT_EQ(chunk, 64U);
  for (int const num_ranks : {1, 2048, 16'384}) {
    auto const share = (grid.rows.num_parts + num_ranks - 1) / num_ranks;
    auto const payload = num_entries * 4 / grid.rows.num_parts * share;
    EXPECT_LT(tile_list_bytes(grid, num_entries, 4, chunk, num_ranks), payload * 5 / 4) << num_ranks;
    EXPECT_GT(tile_list_bytes(grid, num_entries, 4, 1024, num_ranks), payload * 2) << num_ranks;
  }
  // Graphs of usual size keep large chunks.
  EXPECT_EQ(chunk_bytes_for(tile_grid_of_topology(10'000'000, 100'000'000).num_tiles(), 400'000'000), 1024U);
  auto const papers = tile_grid_of_topology(111'000'000, 3'200'000'000);
  EXPECT_EQ(chunk_bytes_for(papers.num_tiles(), 12'800'000'000), 512U);
}

} // namespace
} // namespace orthant::graph
