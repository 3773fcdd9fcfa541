#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Reads edges from lines of text: "source target [weight]", separated by blanks, tabs, ',', ';' or '|'. One parser serves OGB's edge.csv, edge
// lists and MatrixMarket.

#include "graph/graph_source.hpp"
#include "graph/text/text_blocks.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace orthant::graph {

// How to read an edge list, from its first lines. A line of numbers is one whose ends are both whole numbers, which may be in quotes. The
// first line has the names of the columns if
//   - its first two fields are usual names of columns, such as "source,target" or "src dst" (is_header_pair), or
//   - each of its fields is a word, and the next line is one of numbers, or
//   - it has three fields, its third one is no number, and that of the next line is.
// The first line of edges decides about all others: if its ends are whole numbers, all ends are ids; if neither is a number, all are names.

struct EdgeTextProbe {
  std::int64_t num_columns = 0; // 2, or 3 with weights; 0: there is no edge
  TextStart start;              // beginning of the first edge
  bool has_header = false;      // there is a line with names of columns before `start`
  bool has_names = false;       // in place of ids
  bool has_dicts = false;       // NetworkX: lines end in a dict, whose 'weight' is the third column

  // With names.
  char separator = ' ';
  bool has_comments = true;
  std::array<std::size_t, 2> ends{0, 1}; // columns of source and target
  std::optional<std::size_t> weight;     // column of the weights; nullopt: there are none
  std::optional<std::size_t> relation;
  std::array<std::string, 2>
      scopes; // put before the names of sources and targets: equal names are apart in different scopes
  std::string first_edge; // for messages
  std::string wanted;     // for messages
};

/// Reads the first two lines that are neither empty nor comments. With `all_names`, numbers are also read as names. Throws UserError if the
/// first edge has neither two nor three columns, if only one of its ends is a number, or if one is a number but not a valid id.
[[nodiscard]] EdgeTextProbe probe_text_edges(std::filesystem::path const& path, bool all_names = false);

/// True if two fields are usual names of the columns of an edge's ends, whatever their case: "source" and "target", ":START_ID" and ":END_ID".
[[nodiscard]] bool is_header_pair(std::string_view first, std::string_view second);

// Attributes of an edge as NetworkX writes them: {'weight': 2.5, 'kind': 'x'}.

enum class DictWeight : std::uint8_t { absent, number, no_number };

/// Sets the weight to the finite number of the member 'weight' or "weight" in the text of a dict. The number may be one of NumPy, such as
/// np.float64(2.5).
[[nodiscard]] DictWeight find_dict_weight(std::string_view dict, float& weight);
/// Reads the weight of a dict if the first edge `has_weight`. Returns what is wrong if this edge differs from the first one, such as "no
/// finite number follows 'weight'"; otherwise an empty text.
[[nodiscard]] std::string_view read_dict_weight(std::string_view dict, bool has_weight, float& weight);

/// Format of a line of edges, and the valid ids.
struct EdgeTextFormat {
  enum class Weights : std::uint8_t { absent, read, passed_over };

  std::int64_t first_id = 0;     // 1 in MatrixMarket
  std::int64_t num_vertices = 0; // ids are below first_id + num_vertices
  bool has_comments = false;     // lines that start with '#' or '%'; empty lines are always skipped
  Weights weights = Weights::absent;
  bool has_dicts = false;         // the weight is in a dict of NetworkX
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
