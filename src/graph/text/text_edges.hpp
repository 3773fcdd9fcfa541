#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Reads edges from lines of text: "source target [weight]", separated by blanks, tabs, ',', ';' or '|'. One parser serves OGB's edge.csv, edge
// lists and MatrixMarket.

#include "graph/graph_source.hpp"
#include "graph/text/text_blocks.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>

namespace orthant::graph {

/// Format of a line of edges, and the valid ids.
struct EdgeTextFormat {
  enum class Weights : std::uint8_t { absent, read, passed_over };

  std::int64_t first_id = 0;     // 1 in MatrixMarket
  std::int64_t num_vertices = 0; // ids are below first_id + num_vertices
  bool has_comments = false;     // lines that start with '#' or '%'; empty lines are always skipped
  Weights weights = Weights::absent;
  bool has_dicts = false;         // the weight is in a dict of NetworkX (edge_probe.hpp)
  bool may_have_names = false;    // messages then suggest --names
  bool has_whole_weights = false; // if true, a fractional weight is an error
  TextStart start;                // where the edges begin, after a header that is not a comment
  std::string id_limit;           // source of num_vertices for messages: "num-node-list.csv.gz"
};

/// The edges of this share; all of a .gz file belongs to the first share.
[[nodiscard]] std::unique_ptr<EdgeStream> read_text_edges(std::filesystem::path const& path, Share share,
                                                          EdgeTextFormat const& format,
                                                          std::int64_t batch_size);

/// All edges of `path`, with weights from a file with one number per line.
[[nodiscard]] std::unique_ptr<EdgeStream> read_text_edges_with_weights(std::filesystem::path const& path,
                                                                       std::filesystem::path const& weights,
                                                                       EdgeTextFormat const& format,
                                                                       std::int64_t batch_size);

// The head of a MatrixMarket file (Boisvert, Pozo, Remington, NIST 1996): banner, comments, sizes. It is followed by lines of edges with
// ids from 1; "row column" is "source target".

struct MatrixMarketHead {
  std::int64_t num_vertices = 0; // rows = columns
  std::int64_t num_entries = 0;
  bool has_values = false;   // real or integer; false: pattern
  bool has_integers = false; // values are integers
  bool is_symmetric = false; // one triangle is listed and stands for both
  bool is_skew = false;      // skew-symmetric: the other triangle has the opposite sign
  TextStart start;           // where the edges begin
};

/// True if the file begins with "%%MatrixMarket".
[[nodiscard]] bool is_matrix_market(std::filesystem::path const& path);

/// Throws a UserError "file:line: .." if the head is wrong, or if the matrix is not a graph: array, complex, hermitian, or
/// not square.
[[nodiscard]] MatrixMarketHead read_matrix_market_head(std::filesystem::path const& path);

} // namespace orthant::graph
