#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The head of a MatrixMarket file (Boisvert, Pozo, Remington, NIST 1996): banner, comments, sizes. The
// entries after it are lines of edges (text_edges.hpp), counted from 1; "row column" is "source target".

#include <cstdint>
#include <filesystem>

namespace orthant::graph {

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
