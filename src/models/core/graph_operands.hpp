#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a model needs of a graph, as operands on the grid: blocks of A^, features, targets, original ids.
// Reads from a store just this rank's rectangles.

#include "graph/store/store_reader.hpp"
#include "models/core/activation.hpp"
#include "models/core/vertex_order.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/matrix/dist_sparse.hpp"

#include <map>
#include <tuple>

namespace orthant::models {

/// How features are scaled as they are read. row: each vertex's to sum 1 (a zero row stays zero).
enum class FeatureNorm : std::uint8_t { none, row };
[[nodiscard]] FeatureNorm parse_feature_norm(std::string_view word);

/// Blocks of A^, one for each distinct pair of axes and parity: layers share them, and where A is symmetric a
/// block and its transpose serve two layers.
template<class T>
class AdjacencyBlocks {
 public:
  AdjacencyBlocks(pmm::ProcessGrid const& grid, graph::GraphStore const& store)
      : grid_(grid),
        store_(store) {}

  /// The block of that placement. Collective over the grid's group: may read the store.
  [[nodiscard]] pmm::DistSparse<T> get(pmm::Placement const& placement, bool is_even);

  /// Bytes held, for the memory estimate.
  [[nodiscard]] std::int64_t num_bytes() const { return num_bytes_; }

 private:
  using Key = std::tuple<pmm::AxisSet, pmm::AxisSet, bool>;
  pmm::ProcessGrid const& grid_;
  graph::GraphStore const& store_;
  std::map<Key, pmm::DistSparse<T>> blocks_;
  std::int64_t num_bytes_ = 0;
};

/// Dense features F[a,b] of the placement, rows in order p2. Collective over the grid's group.
template<class T>
[[nodiscard]] pmm::DistMatrix<T> read_dense_features(pmm::ProcessGrid const& grid,
                                                     graph::GraphStore const& store,
                                                     pmm::Placement const& placement, FeatureNorm norm);

/// Sparse features as a left operand X[a,b], with the transpose that dW = X^T dU needs.
template<class T>
[[nodiscard]] pmm::DistSparse<T> read_sparse_features(pmm::ProcessGrid const& grid,
                                                      graph::GraphStore const& store,
                                                      pmm::Placement const& placement, FeatureNorm norm);

/// What dropout on a block of that placement is keyed by. Collective over the grid's group.
[[nodiscard]] BlockKeys read_block_keys(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                        pmm::Placement const& placement);

} // namespace orthant::models
