#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Edges, features, labels and vertex lists out of .npy arrays, which lie in files or in an .npz archive.
// Shares are ranges of columns of edge_index and of rows of everything else: balanced ones if the array can
// be read at any offset; a compressed member cannot, so one rank has all of it, as of a .gz file.

#include "graph/arrays/npy.hpp"
#include "graph/graph_source.hpp"
#include "graph/text/text_blocks.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

namespace orthant::graph {

/// Opens the same array anew: each stream has handles of its own.
using OpenArray = std::function<NpyArray()>;

/// The share of `count` columns or rows of this array.
[[nodiscard]] Range npy_share(NpyArray const& array, std::int64_t count, Share share);

/// The ends of E edges, integers: two lists [E], or, if `targets` is empty, one edge_index [2, E] that has
/// all sources, then all targets.
struct EndArrays {
  OpenArray sources;
  OpenArray targets;
};
/// `weights` may be empty; else [E].
[[nodiscard]] std::unique_ptr<EdgeStream> read_npy_edges(EndArrays const& ends, OpenArray const& weights,
                                                         Range edges, std::int64_t num_vertices,
                                                         std::int64_t batch_size);

/// [N, D] of any type, as floats, which must be finite.
[[nodiscard]] std::unique_ptr<FeatureStream> read_npy_features(OpenArray const& features, Range rows,
                                                               std::int64_t batch_rows);

/// CSR in four arrays: x_indptr [N + 1], x_indices [nnz], x_data [nnz], x_shape [2].
struct SparseArrays {
  OpenArray indptr;
  OpenArray indices;
  OpenArray data;
};
/// Throws UserError if lengths do not fit, or if the offsets do not go from 0 to the number of entries.
void check_sparse_arrays(SparseArrays const& arrays, std::int64_t num_rows);
/// `num_columns` is at most 2^31 - 1.
[[nodiscard]] std::unique_ptr<FeatureStream> read_npy_sparse_features(SparseArrays const& arrays, Range rows,
                                                                      std::int64_t num_columns,
                                                                      std::int64_t batch_rows);

/// [N] or [N, 1] of integers (-1 = none) or floats (nan = none): classes. [N, C], C > 1: 0, 1 or nan/-1.
[[nodiscard]] std::unique_ptr<LabelStream> read_npy_labels(OpenArray const& labels, Range rows,
                                                           std::int64_t num_classes, std::int64_t batch_rows);

/// Elements `share` of a list of vertices.
[[nodiscard]] std::vector<std::int64_t> read_npy_vertices(NpyArray array, Share share,
                                                          std::int64_t num_vertices);

/// The vertices of this share for which a mask, [N] of bool or of integers 0 and 1, holds.
[[nodiscard]] std::vector<std::int64_t> read_npy_mask(NpyArray array, Share share);

/// Rows `rows` of a list with a number per vertex: 1 train, 2 valid, 3 test, 0 none of them.
[[nodiscard]] SplitShare read_npy_split(NpyArray array, Range rows);

} // namespace orthant::graph
