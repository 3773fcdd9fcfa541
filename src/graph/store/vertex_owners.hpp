#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Who holds what about a vertex while a graph is partitioned. Three ways to deal [0, N) to ranks, each O(1):
//   EdgeOwners    by original id, spread: edges of neighbouring ids, often the hubs, go to different ranks
//   block owners  by original id, contiguous (runtime::balanced_range): degrees, positions
//   PositionOwners by position in p1 or p2, contiguous in whole chunks of the store's checksums

#include "graph/graph_source.hpp"
#include "graph/store/tile_grid.hpp"

#include <algorithm>
#include <cstdint>

namespace orthant::graph {

/// Of every group of P consecutive ids each rank owns one, turned by a hash of the group's number.
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
    if (vertex >> 32 == 0) { // a 32-bit division is several times faster
      group = static_cast<std::uint32_t>(vertex) / num_ranks_;
      place = static_cast<std::uint32_t>(vertex) % num_ranks_;
    } else {
      group = vertex / num_ranks_;
      place = static_cast<std::uint32_t>(vertex % num_ranks_);
    }
    auto const turned = place + turn(group);
    return {static_cast<int>(turned < num_ranks_ ? turned : turned - num_ranks_), group};
  }
  /// The vertex with this home; one at or above num_vertices where the last group is not full.
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

/// Elements of an array that share a checksum.
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
