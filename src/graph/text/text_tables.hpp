#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Reads tables of numbers from lines of text, one vertex per line, as in OGB's node-feat.csv and node-label.csv, and lists of vertices, as
// in split/NAME/train.csv. The number of a row is the number of lines before it, so one rank reads the whole file; the other ranks create
// no stream. A first line of names (every field begins with a letter, a quote or '_' and is not a number) is skipped.

#include "graph/graph_source.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace orthant::graph {

/// True if the file begins with a line of names.
[[nodiscard]] bool has_names_line(std::filesystem::path const& path);

/// Number of comma- or blank-separated fields in the first line of numbers; 0 if there is none.
[[nodiscard]] std::int64_t count_text_columns(std::filesystem::path const& path);

/// `num_rows` lines, one for each of the graph's `rows`, of `num_columns` finite numbers each. Otherwise throws a UserError "file:line: ..".
[[nodiscard]] std::unique_ptr<FeatureStream>
read_text_features(std::filesystem::path const& path, std::int64_t num_rows, std::int64_t num_columns,
                   std::int64_t batch_rows, char const* rows = "vertices");

/// Converts a number to a class: -1 (no class) for nan, -1 and -100; nullopt if it is neither of these nor an integer from 0 to num_classes
/// - 1.
[[nodiscard]] std::optional<std::int64_t> class_of(double value, std::int64_t num_classes);

/// One class below `num_classes` per line; "nan", -1 and -100 mean none.
[[nodiscard]] std::unique_ptr<LabelStream> read_text_classes(std::filesystem::path const& path,
                                                             std::int64_t num_rows, std::int64_t num_classes,
                                                             std::int64_t batch_rows);

/// `num_classes` fields of 0, 1 or nan per line.
[[nodiscard]] std::unique_ptr<LabelStream> read_text_indicator(std::filesystem::path const& path,
                                                               std::int64_t num_rows,
                                                               std::int64_t num_classes,
                                                               std::int64_t batch_rows);

/// One vertex below `num_vertices` per line.
[[nodiscard]] std::vector<std::int64_t> read_text_vertices(std::filesystem::path const& path,
                                                           std::int64_t num_vertices);

/// The single number in a file such as num-node-list.csv.gz. Throws UserError if there are more lines (OGB's data sets of many graphs) or
/// no number.
[[nodiscard]] std::int64_t read_text_count(std::filesystem::path const& path);

/// A file with one weight per line, in the order of the edges.
class TextColumn {
 public:
  explicit TextColumn(std::filesystem::path const& path);
  ~TextColumn();
  /// Throws UserError if fewer than out.size() lines are left.
  void read(std::span<float> out);
  /// Throws UserError if lines are left.
  void expect_end();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace orthant::graph
