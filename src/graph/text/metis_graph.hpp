#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Reads the graph files of METIS, which KaHIP and others use as well: a line "n m [fmt [ncon]]" for n vertices and m edges, and then a line
// per vertex with its neighbors, counted from 1, so that each edge is listed twice. The digits of fmt say whether lines begin with a size of
// the vertex, then with ncon weights of it (both are ignored), and whether a weight follows each neighbor. An empty line is a vertex without
// neighbors; lines that begin with '%' are comments. Source: the manual of METIS 5, section 4.1.

#include "graph/graph_source.hpp"
#include "graph/text/text_blocks.hpp"
#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>

namespace orthant::graph {

struct MetisHead {
  std::int64_t num_vertices = 0;
  std::int64_t num_edges = 0;
  std::int64_t num_passed_over = 0; // numbers to skip in a line: size and weights of the vertex
  bool has_weights = false;         // of edges
  TextStart start;                  // where the lines of vertices begin
};

/// Throws a UserError "file:line: .." if the head is wrong.
[[nodiscard]] MetisHead read_metis_head(std::filesystem::path const& path);

/// Number of lines of this share after the head that are not comments.
[[nodiscard]] std::int64_t count_metis_lines(std::filesystem::path const& path, Share share,
                                             MetisHead const& head);

struct MetisLines {
  std::int64_t first_vertex = 0; // first vertex of this share: number of vertices' lines before it
  bool lists_both = false;       // true: edges in both directions; false: only from the smaller vertex
  bool reads_weights = false;
};
/// The edges of a share. Throws a UserError that names the line if a line is wrong, or if there are more lines than vertices.
[[nodiscard]] std::unique_ptr<EdgeStream> read_metis_edges(std::filesystem::path const& path, Share share,
                                                           MetisHead const& head, MetisLines lines,
                                                           std::int64_t batch_size);

/// Checks the file as a whole, and returns the first vertex of this rank's part of the lines. Throws UserError on all ranks if a line is
/// wrong, if there are more or fewer lines or edges than the head says, or if an edge is not listed at both of its ends with the same weight.
/// Reads the file twice. Collective.
[[nodiscard]] std::int64_t check_metis_graph(runtime::Communicator const& comm,
                                             std::filesystem::path const& path, MetisHead const& head);

} // namespace orthant::graph
