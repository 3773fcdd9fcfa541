#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// METIS's k-way partitions (Karypis and Kumar, 1998), for comparison with other systems, and as clusters for orders with locality. METIS is
// serial with 32-bit indices: it runs on rank 0, on graphs of fewer than 2^31 adjacency entries.

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

/// Neighbors of every vertex: both directions of every edge, ascending, without repeats and self loops.
struct Adjacency {
  std::vector<std::int32_t> offsets; // [N + 1]
  std::vector<std::int32_t> neighbours;

  [[nodiscard]] std::int64_t num_vertices() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
};

/// Builds the adjacency from a list of edges in any order. The list is empty afterwards.
[[nodiscard]] Adjacency make_adjacency(std::int64_t num_vertices,
                                       std::vector<std::array<std::int32_t, 2>>& edges);

struct MetisResult {
  std::vector<std::int32_t> parts; // of each vertex
  std::int64_t num_parts = 0;
  std::int64_t cut = 0;    // number of edges between parts
  std::int64_t volume = 0; // halo vertices: for each vertex, number of other parts with a neighbor
  double balance = 1;      // largest part / mean part, in vertices
};

/// METIS's algorithm. Bisections number the parts along a tree, so that parts with close numbers are close in the graph.
enum class MetisMethod : std::uint8_t { kway, bisections };

/// Serial. Returns the same parts for the same graph and seed. Throws Error if METIS fails.
[[nodiscard]] MetisResult partition_with_metis(Adjacency const& graph, std::int64_t num_parts,
                                               std::uint64_t seed, MetisMethod method = MetisMethod::kway);

/// True if METIS supports a graph with these numbers of edges (without self loops) and vertices.
[[nodiscard]] bool fits_metis(std::int64_t num_edges, std::int64_t num_vertices);
/// Throws UserError if fits_metis() is false; `what` begins the message.
void require_metis_size(std::int64_t num_edges, std::int64_t num_vertices, std::string const& what);

/// Returns the graph on rank 0, and an empty one on other ranks. `edges` is an EdgeStore. Collective.
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

/// Sends the parts of all vertices from rank 0 to the vertices' block owners. Collective.
[[nodiscard]] std::vector<std::int32_t> scatter_parts(runtime::Communicator const& comm,
                                                      std::int64_t num_vertices,
                                                      std::span<std::int32_t const> parts);

/// File of METIS's assignment: "graph.h5" -> "graph.metis4.txt".
[[nodiscard]] std::filesystem::path metis_file_of(std::filesystem::path const& output,
                                                  std::int64_t num_parts);

/// Writes one part per line, in order of original ids. Not collective.
void write_assignment(std::filesystem::path const& path, std::span<std::int32_t const> parts);

/// Number of vertices per cluster. Some thousand clusters suffice to balance blocks. Clusters should be large enough to contain most edges
/// of a graph with locality, and small enough for a core's cache.
[[nodiscard]] inline std::int64_t vertices_per_cluster(std::int64_t num_vertices) {
  return std::clamp<std::int64_t>(num_vertices / 8192, 16, 512);
}

} // namespace orthant::graph
