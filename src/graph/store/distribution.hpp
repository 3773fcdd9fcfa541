#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Partition of a matrix into tiles, so that any grid reads its rectangle with little overhead.
//
// Part t of T begins at floor(t N / T). Block j of P of a balanced partition begins at floor(j N / P) or less than P rows later. If P
// divides T, a rank therefore reads at most one additional tile along each side: 1/(T/P) of its rectangle. T = 240 is divisible by 1..6, 8,
// 10, 12, 15 and 16. A tile has at most 2^16 rows and columns, so that an entry takes 4 bytes: row << 16 | column, both counted from the
// tile's corner.

#include "graph/graph_source.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace orthant::graph {

/// [0, count) partitioned into num_parts parts of floor or ceil of count / num_parts. count < 2^42, num_parts <= 2^20.
struct Cut {
  std::int64_t count = 0;
  std::int64_t num_parts = 1;

  [[nodiscard]] constexpr std::int64_t begin(std::int64_t part) const { return part * count / num_parts; }
  [[nodiscard]] constexpr std::int64_t size(std::int64_t part) const { return begin(part + 1) - begin(part); }
  [[nodiscard]] constexpr Range range(std::int64_t part) const { return {begin(part), begin(part + 1)}; }
  /// The part that contains `index`.
  [[nodiscard]] constexpr std::int64_t part_of(std::int64_t index) const {
    return ((index + 1) * num_parts - 1) / count;
  }
  /// The parts that overlap `indices`; empty for an empty range.
  [[nodiscard]] constexpr Range parts_of(Range indices) const {
    if (indices.end <= indices.begin) return {0, 0};
    return {part_of(indices.begin), part_of(indices.end - 1) + 1};
  }
  friend bool operator==(Cut const&, Cut const&) = default;
};

/// Cut::part_of without a division, for hot loops. A table contains the part at the begin of each block of 2^shift indices. No part is
/// shorter than a block, so that the result is this part or the next one.
class CutIndex {
 public:
  explicit CutIndex(Cut const& cut) {
    for (std::int64_t part = 0; part <= cut.num_parts; ++part)
      begins_.push_back(cut.begin(part));
    while ((std::int64_t{2} << shift_) <= cut.count / cut.num_parts)
      ++shift_;
    for (std::int64_t index = 0; index < cut.count; index += std::int64_t{1} << shift_)
      guesses_.push_back(static_cast<std::int32_t>(cut.part_of(index)));
  }
  [[nodiscard]] std::int64_t begin(std::int64_t part) const {
    return begins_[static_cast<std::size_t>(part)];
  }
  [[nodiscard]] std::int64_t part_of(std::int64_t index) const {
    std::int64_t const guess = guesses_[static_cast<std::size_t>(index >> shift_)];
    return guess + (index >= begin(guess + 1) ? 1 : 0);
  }

 private:
  std::vector<std::int64_t> begins_;
  std::vector<std::int32_t> guesses_;
  int shift_ = 0;
};

inline constexpr std::int64_t max_tile_side = std::int64_t{1} << 16;

/// Row and column within a tile.
struct TileEntry {
  std::uint32_t row;
  std::uint32_t column;
};
[[nodiscard]] constexpr std::uint32_t pack(TileEntry entry) {
  return entry.row << 16 | entry.column;
}
[[nodiscard]] constexpr TileEntry unpack(std::uint32_t packed) {
  return {packed >> 16, packed & 0xffffU};
}

struct TileGrid {
  Cut rows;
  Cut columns;

  [[nodiscard]] constexpr std::int64_t num_tiles() const { return rows.num_parts * columns.num_parts; }
  friend bool operator==(TileGrid const&, TileGrid const&) = default;
};

namespace detail {
/// The largest standard number of parts (at most `finest`) with at least `least` indices per part; more parts if they would otherwise
/// exceed the size of a tile.
[[nodiscard]] constexpr std::int64_t num_parts_for(std::int64_t count, std::int64_t finest,
                                                   std::int64_t least) {
  constexpr std::array<std::int64_t, 6> usual{240, 120, 48, 24, 12, 1};
  std::int64_t parts = 1;
  for (auto const candidate : usual)
    if (candidate <= finest && candidate * least <= count) {
      parts = candidate;
      break;
    }
  auto const most = parts * max_tile_side;
  return count <= most ? parts : parts * ((count + most - 1) / most);
}
} // namespace detail

/// Tiles of A: as small as possible with about 16 entries per tile, so that a tile's table entry and checksum are small in comparison.
[[nodiscard]] constexpr TileGrid tile_grid_of_topology(std::int64_t num_vertices, std::int64_t num_entries) {
  std::int64_t finest = 1;
  while ((finest + 1) * (finest + 1) * 16 <= num_entries && finest < 240)
    ++finest;
  Cut const cut{num_vertices, detail::num_parts_for(num_vertices, finest, 1)};
  return {cut, cut};
}

/// Tiles of sparse features, whose number of entries is not known in advance.
[[nodiscard]] constexpr TileGrid tile_grid_of_features(std::int64_t num_vertices, std::int64_t num_features) {
  return {{num_vertices, detail::num_parts_for(num_vertices, 240, 64)},
          {num_features, detail::num_parts_for(num_features, 12, 16)}};
}

/// Bytes of the tables of such a matrix in the file: the place and the checksum of each tile, the begin of each tile row, and the checksums
/// of these tables. For 10^9 vertices and 2 10^10 entries it is 1.9 GB, in addition to 80 GB of entries.
[[nodiscard]] constexpr std::int64_t table_bytes(TileGrid const& grid) {
  constexpr std::int64_t elements_per_checksum = 1024;
  auto const with_checksums = [](std::int64_t rows, std::int64_t columns, std::int64_t element_bytes) {
    auto const num_checksums = (columns + elements_per_checksum - 1) / elements_per_checksum;
    return rows * (columns * element_bytes + num_checksums * 4);
  };
  auto const rows = grid.rows.num_parts;
  auto const columns = grid.columns.num_parts;
  return with_checksums(1, rows + 1, 8) + with_checksums(rows, columns + 1, 4) +
         with_checksums(rows, columns, 4);
}

/// The tile rows of one rank: contiguous, in order of ranks.
[[nodiscard]] constexpr Range tile_rows_of_rank(std::int64_t num_parts, int num_ranks, int rank) {
  return runtime::balanced_range(num_parts, num_ranks, rank);
}
/// Inverse of tile_rows_of_rank.
[[nodiscard]] constexpr int rank_of_tile_row(std::int64_t num_parts, int num_ranks, std::int64_t tile_row) {
  auto const small = num_parts / num_ranks;
  auto const num_large = num_parts % num_ranks;
  auto const in_large = num_large * (small + 1);
  return static_cast<int>(tile_row < in_large ? tile_row / (small + 1)
                                              : num_large + (tile_row - in_large) / small);
}

// Owners of vertex data while a graph is partitioned. Three distributions of [0, N) over the ranks, each computed in O(1):
//   EdgeOwners      by original id, spread: edges of neighboring ids, often the hubs, go to different ranks
//   block owners    by original id, contiguous (runtime::balanced_range): degrees, positions
//   PositionOwners  by position in p1 or p2, contiguous in whole chunks of the store's checksums

/// In every group of P consecutive ids, each rank owns one; a hash of the group's number rotates the ranks.
class EdgeOwners {
 public:
  EdgeOwners(std::int64_t num_vertices, int num_ranks)
      : num_vertices_(static_cast<std::uint64_t>(num_vertices)),
        num_ranks_(static_cast<std::uint32_t>(num_ranks)) {}

  struct Home {
    int rank;
    std::uint64_t local;
  };
  [[nodiscard]] Home home_of(std::uint64_t vertex) const {
    if (num_ranks_ == 1) return {0, vertex};
    std::uint64_t group;
    std::uint32_t place;
    if (vertex >> 32 == 0) { // 32-bit division is several times faster
      group = static_cast<std::uint32_t>(vertex) / num_ranks_;
      place = static_cast<std::uint32_t>(vertex) % num_ranks_;
    } else {
      group = vertex / num_ranks_;
      place = static_cast<std::uint32_t>(vertex % num_ranks_);
    }
    auto const turned = place + turn(group);
    return {static_cast<int>(turned < num_ranks_ ? turned : turned - num_ranks_), group};
  }
  /// The vertex with this rank and local number. It may be num_vertices or more in the last group, which may be incomplete.
  [[nodiscard]] std::uint64_t vertex_at(int rank, std::uint64_t local) const {
    auto const place = static_cast<std::uint32_t>(rank) + num_ranks_ - turn(local);
    return local * num_ranks_ + (place < num_ranks_ ? place : place - num_ranks_);
  }
  /// Equal on all ranks.
  [[nodiscard]] std::uint64_t num_local() const { return (num_vertices_ + num_ranks_ - 1) / num_ranks_; }
  [[nodiscard]] std::uint64_t num_vertices() const { return num_vertices_; }

 private:
  [[nodiscard]] std::uint32_t turn(std::uint64_t group) const {
    auto const hash = static_cast<std::uint32_t>(group * 0x9e3779b97f4a7c15ULL >> 32); // 2^64 / golden ratio
    return static_cast<std::uint32_t>(static_cast<std::uint64_t>(hash) * num_ranks_ >> 32);
  }
  std::uint64_t num_vertices_;
  std::uint32_t num_ranks_;
};

/// The block owner of an original id: inverse of balanced_range(num_vertices, num_ranks, rank).
[[nodiscard]] constexpr int block_owner(std::int64_t num_vertices, int num_ranks, std::int64_t vertex) {
  return rank_of_tile_row(num_vertices, num_ranks, vertex);
}

/// Number of elements of an array per checksum.
inline constexpr std::int64_t elements_per_checksum = 1024;
[[nodiscard]] constexpr std::int64_t num_checksums(std::int64_t num_elements) {
  return (num_elements + elements_per_checksum - 1) / elements_per_checksum;
}

struct PositionOwners {
  std::int64_t num_vertices;
  int num_ranks;

  [[nodiscard]] Range range(int rank) const {
    auto const chunks = runtime::balanced_range(num_checksums(num_vertices), num_ranks, rank);
    return {std::min(num_vertices, chunks.begin * elements_per_checksum),
            std::min(num_vertices, chunks.end * elements_per_checksum)};
  }
  [[nodiscard]] int owner(std::int64_t position) const {
    return rank_of_tile_row(num_checksums(num_vertices), num_ranks, position / elements_per_checksum);
  }
};

} // namespace orthant::graph
