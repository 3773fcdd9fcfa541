#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// METIS's k-way partitions (Karypis and Kumar, 1998), as peers use them, and as clusters for an order that
// keeps neighbours together. METIS is serial and its indices have 32 bits, so this runs on rank 0, on graphs
// of fewer than 2^31 adjacency entries.

#include "graph/exchange.hpp"
#include "graph/partition/placement.hpp"
#include "runtime/comm/communicator.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace orthant::graph {

/// Neighbours of every vertex, both directions of every edge, ascending, without repeats and self loops.
struct Adjacency {
  std::vector<std::int32_t> offsets; // [N + 1]
  std::vector<std::int32_t> neighbours;

  [[nodiscard]] std::int64_t num_vertices() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
};

/// Builds it from any list of edges, which is emptied.
[[nodiscard]] Adjacency make_adjacency(std::int64_t num_vertices,
                                       std::vector<std::array<std::int32_t, 2>>& edges);

struct MetisResult {
  std::vector<std::int32_t> parts; // of each vertex
  std::int64_t num_parts = 0;
  std::int64_t cut = 0;    // edges between parts
  std::int64_t volume = 0; // over vertices: number of other parts among its neighbours = halo vertices
  double balance = 1;      // largest part / mean part, in vertices
};

/// How METIS finds the parts. Bisections number them along a tree: parts of near numbers are near each other
/// in the graph.
enum class MetisMethod : std::uint8_t { kway, bisections };

/// Serial; the same parts for the same graph and seed. Error where METIS fails.
[[nodiscard]] MetisResult partition_with_metis(Adjacency const& graph, std::int64_t num_parts,
                                               std::uint64_t seed, MetisMethod method = MetisMethod::kway);

/// Whether METIS can take a graph of that many edges (self loops not counted) and vertices.
[[nodiscard]] bool fits_metis(std::int64_t num_edges, std::int64_t num_vertices);
/// UserError where it cannot; `what` begins the message.
void require_metis_size(std::int64_t num_edges, std::int64_t num_vertices, std::string const& what);

/// The graph on rank 0 (empty elsewhere). `edges` as of EdgeStore. Collective.
template<class Edges>
[[nodiscard]] Adjacency gather_adjacency(runtime::Communicator const& comm, Edges const& edges,
                                         std::int64_t num_vertices) {
  using Pair = std::array<std::int32_t, 2>;
  std::vector<Pair> mine;
  edges.for_each_local_edge([&](std::int64_t a, std::int64_t b) {
    if (a != b) mine.push_back({static_cast<std::int32_t>(a), static_cast<std::int32_t>(b)});
  });
  std::vector<Pair> all;
  if (comm.size() == 1) {
    all = std::move(mine);
  } else {
    std::size_t next = 0;
    exchange<Pair>(
        comm,
        [&](Outbox<Pair>& outbox) {
          for (; next < mine.size() && !outbox.is_full(); ++next)
            outbox.push(0, mine[next]);
          return next < mine.size();
        },
        [&](std::span<Pair const> arrived) { all.insert(all.end(), arrived.begin(), arrived.end()); });
    mine = {};
  }
  return comm.is_root() ? make_adjacency(num_vertices, all) : Adjacency{};
}

/// Rank 0's parts of all vertices to the vertices' block owners. Collective.
[[nodiscard]] std::vector<std::int32_t> scatter_parts(runtime::Communicator const& comm,
                                                      std::int64_t num_vertices,
                                                      std::span<std::int32_t const> parts);

/// Where METIS's assignment goes: "graph.h5" -> "graph.metis4.txt".
[[nodiscard]] std::filesystem::path metis_file_of(std::filesystem::path const& output,
                                                  std::int64_t num_parts);

/// One part a line, in order of original ids. Not collective.
void write_assignment(std::filesystem::path const& path, std::span<std::int32_t const> parts);

/// Vertices of a cluster: some thousand clusters, so that they balance blocks, but large enough that most
/// edges of a graph with locality stay inside, and small enough for a core's cache.
[[nodiscard]] inline std::int64_t vertices_per_cluster(std::int64_t num_vertices) {
  return std::clamp<std::int64_t>(num_vertices / 8192, 16, 512);
}

} // namespace orthant::graph
