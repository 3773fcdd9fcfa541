#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Edges out of lines of text: "source target [weight]" with blanks, tabs or a comma between them. One parser
// serves OGB's edge.csv, edge lists and MatrixMarket.

#include "graph/graph_source.hpp"
#include "graph/text/text_blocks.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>

namespace orthant::graph {

/// What a line of edges looks like, and which ids it may name.
struct EdgeTextFormat {
  enum class Weights : std::uint8_t { absent, read, passed_over };

  std::int64_t first_id = 0;     // 1 in MatrixMarket
  std::int64_t num_vertices = 0; // ids are below first_id + num_vertices
  bool has_comments = false;     // lines that start with '#' or '%'; empty lines are passed over everywhere
  Weights weights = Weights::absent;
  bool has_whole_weights = false; // another weight is an error
  std::int64_t first_byte = 0;    // where a header of another kind ends (plain files)
  std::int64_t lines_to_skip = 0; // where it ends in a .gz file
  std::string id_limit;           // who says num_vertices, for messages: "num-node-list.csv.gz"
};

/// This share's edges; all of a .gz file is in the first.
[[nodiscard]] std::unique_ptr<EdgeStream> read_text_edges(std::filesystem::path const& path, Share share,
                                                          EdgeTextFormat const& format,
                                                          std::int64_t batch_size);

/// All edges of `path`, and their weights from a file of one number a line.
[[nodiscard]] std::unique_ptr<EdgeStream> read_text_edges_with_weights(std::filesystem::path const& path,
                                                                       std::filesystem::path const& weights,
                                                                       EdgeTextFormat const& format,
                                                                       std::int64_t batch_size);

/// What the beginning of an edge list tells.
struct EdgeTextProbe {
  std::int64_t num_columns = 0; // 0: there is no line of numbers
  std::int64_t first_byte = 0;  // where the lines of numbers begin (uncompressed)
  std::int64_t lines_to_skip = 0;
};
/// Reads until the first line of numbers. One line before it may name the columns: every field begins with a
/// letter, a quote or '_'. Throws UserError where the first line of numbers has neither two nor three
/// columns.
[[nodiscard]] EdgeTextProbe probe_text_edges(std::filesystem::path const& path);

// The head of a MatrixMarket file (Boisvert, Pozo, Remington, NIST 1996): banner, comments, sizes. The
// entries after it are lines of edges (text_edges.hpp), counted from 1; "row column" is "source target".

struct MatrixMarketHead {
  std::int64_t num_vertices = 0; // rows = columns
  std::int64_t num_entries = 0;
  bool has_values = false;   // real or integer; false: pattern
  bool has_integers = false; // values are whole numbers
  bool is_symmetric = false; // one triangle is listed and stands for both
  std::int64_t first_byte = 0;
  std::int64_t num_lines = 0; // of the head
};

/// True where the file begins with "%%MatrixMarket".
[[nodiscard]] bool is_matrix_market(std::filesystem::path const& path);

/// Throws UserError "file:line: .." where the head is wrong, or of a kind that is no graph: array, complex,
/// skew-symmetric, hermitian, not square.
[[nodiscard]] MatrixMarketHead read_matrix_market_head(std::filesystem::path const& path);

} // namespace orthant::graph
