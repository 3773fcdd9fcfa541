#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Streams of edges, features, labels and vertex lists from .npy arrays, which may be in files or in an .npz archive. Shares are ranges of
// columns of edge_index, and of rows of all other arrays. They are balanced if the array has random access. A compressed member has no
// random access, so one rank reads all of it, as for a .gz file.

#include "graph/arrays/npy.hpp"
#include "graph/graph_source.hpp"
#include "graph/text/text_blocks.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace orthant::graph {

/// Opens the array again, because each stream needs its own file handle.
using OpenArray = std::function<NpyArray()>;

/// The range of columns or rows of this array (`count` in all) that belongs to `share`.
[[nodiscard]] Range npy_share(NpyArray const& array, std::int64_t count, Share share);

/// The ends of E edges, integers: two arrays [E], or, if `targets` is empty, one edge_index [2, E] with all sources followed by all
/// targets.
struct EndArrays {
  OpenArray sources;
  OpenArray targets;
};
/// `weights` is [E], or empty for a graph without weights.
[[nodiscard]] std::unique_ptr<EdgeStream> read_npy_edges(EndArrays const& ends, OpenArray const& weights,
                                                         Range edges, std::int64_t num_vertices,
                                                         std::int64_t batch_size);

/// `features` is [N, D] of any type. The stream has finite floats.
[[nodiscard]] std::unique_ptr<FeatureStream> read_npy_features(OpenArray const& features, Range rows,
                                                               std::int64_t batch_rows);

/// CSR matrix in four arrays: x_indptr [N + 1], x_indices [nnz], x_data [nnz], x_shape [2].
struct SparseArrays {
  OpenArray indptr;
  OpenArray indices;
  OpenArray data;
};
/// Throws UserError if the lengths do not match, or if the offsets do not run from 0 to the number of entries.
void check_sparse_arrays(SparseArrays const& arrays, std::int64_t num_rows);
/// `num_columns` must be at most 2^31 - 1.
[[nodiscard]] std::unique_ptr<FeatureStream> read_npy_sparse_features(SparseArrays const& arrays, Range rows,
                                                                      std::int64_t num_columns,
                                                                      std::int64_t batch_rows);

/// Classes: [N] or [N, 1] of integers (-1 = none) or floats (nan = none). Indicators: [N, C] with C > 1, of 0, 1, and -1 or nan.
[[nodiscard]] std::unique_ptr<LabelStream> read_npy_labels(OpenArray const& labels, Range rows,
                                                           std::int64_t num_classes, std::int64_t batch_rows);

/// The part of a list of vertices that belongs to `share`.
[[nodiscard]] std::vector<std::int64_t> read_npy_vertices(NpyArray array, Share share,
                                                          std::int64_t num_vertices);

/// A mask of bool, or of integers 0 and 1: [N], or [N, splits] with a column per split.
class NpyMask {
 public:
  /// The vertices of this share that the mask selects in this split. All calls must have the same `array` and `share`. Each pass over
  /// the array keeps 64 columns, until the last of them is asked for: calls in the order of the splits pass over it once per 64 splits.
  [[nodiscard]] std::vector<std::int64_t> vertices(NpyArray array, Share share, std::int64_t split);

 private:
  static constexpr std::int64_t most_columns_at_once = 64;
  void read(NpyArray array, Range rows);

  Range columns_{0, 0};             // those in bits_
  std::vector<std::uint64_t> bits_; // per row of the share, one bit per column
};

/// The split of the vertices `rows`, from an array with one number per vertex: 1 train, 2 valid, 3 test, 0 none.
[[nodiscard]] SplitShare read_npy_split(NpyArray array, Range rows);

// Labels that are not the numbers of classes: targets of regression, names of classes, and numbers that serve as names.

/// True if a finite number in these rows of an array of floating-point numbers is not an integer.
[[nodiscard]] bool has_fractions(NpyArray array, Range rows);
/// Targets: [N] or [N, T] of floating-point numbers, nan = none.
[[nodiscard]] std::unique_ptr<LabelStream> read_npy_targets(OpenArray const& labels, Range rows,
                                                            std::int64_t batch_rows);

/// The different texts in these rows of an array [N] or [N, 1], without the empty one. Throws UserError if there are more than
/// most_class_names.
[[nodiscard]] std::set<std::string> read_npy_names(NpyArray array, Range rows);
/// Classes from an array of texts: the class is the index of the text in `names`, which must ascend; -1 for the empty text.
[[nodiscard]] std::unique_ptr<LabelStream>
read_npy_named_classes(OpenArray const& labels, Range rows,
                       std::shared_ptr<std::vector<std::string> const> names, std::int64_t batch_rows);

/// Converts the labels to classes: the class is the index of the label in `numbers`, which must ascend and contain all labels.
[[nodiscard]] std::unique_ptr<LabelStream>
renumbered(std::unique_ptr<LabelStream> labels, std::shared_ptr<std::vector<std::int64_t> const> numbers);

} // namespace orthant::graph
