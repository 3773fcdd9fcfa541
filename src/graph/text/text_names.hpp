#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Reads edges whose ends are names: "source target [weight]" per line (text_edges.hpp), or triples "head relation tail". Each rank reads
// its share of the lines once and keeps their edges. Names have numbers in the order in which they appear in the share, which
// name_table.hpp converts to numbers in the whole file. Lines that begin with '#' or '%' are comments.

#include "graph/graph_source.hpp"
#include "graph/text/name_table.hpp"
#include "graph/text/text_blocks.hpp"
#include "graph/text/text_edges.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

namespace orthant::graph {

/// The edges of one share of a file, and its names in the order in which they appear, line by line, source before target.
struct NamedEdges {
  NameTable vertices;
  NameTable relations;
  std::vector<std::array<std::uint32_t, 2>> edges; // numbers of source and target in `vertices`
  std::vector<float> weights;                      // one per edge if weights are read
  std::vector<std::uint16_t> edge_relations;       // numbers in `relations` if the lines are triples
  std::int64_t num_comments_like_edges = 0;        // comments that have as many columns as an edge

  // Numbers in the whole file of the names of this share.
  std::shared_ptr<std::vector<std::int64_t> const> vertex_ids;
  std::vector<std::int64_t> relation_ids;

  /// Of the edges.
  [[nodiscard]] std::int64_t num_bytes() const {
    return static_cast<std::int64_t>(edges.size() * sizeof edges[0] + weights.size() * sizeof(float) +
                                     edge_relations.size() * sizeof(std::uint16_t));
  }
};

/// Reads a share. `vertices`: names with lower numbers than those of the share. Throws a UserError with the line if it is wrong, or if
/// there are more than most_relations relations. Memory: 8 bytes per edge, 4 per weight and 2 per relation, the names, and at most 40 bytes
/// for each name.
[[nodiscard]] NamedEdges read_named_edges(std::filesystem::path const& path, Share share,
                                          EdgeTextProbe const& probe, EdgeTextFormat::Weights weights,
                                          NameTable vertices = {});

/// True if a name has 1 to 4096 bytes and no control characters, so that it can be part of a line of text.
[[nodiscard]] bool is_vertex_name(std::string_view name);

/// Finds the separator and the first line of a file of triples. A first line of names of columns, such as "head relation tail" or "subject
/// predicate object", is a header.
[[nodiscard]] EdgeTextProbe probe_triples(std::filesystem::path const& path);

/// The edges of a share, with the numbers that names have in the whole file. With `adds_inverse`, each triple (u, r, v) is followed by (v,
/// r + R, u), where R is the number of relations of the file.
[[nodiscard]] std::unique_ptr<EdgeStream> stream_of(std::shared_ptr<NamedEdges const> edges,
                                                    bool adds_inverse, std::int64_t num_relations,
                                                    std::int64_t batch_size);

} // namespace orthant::graph
