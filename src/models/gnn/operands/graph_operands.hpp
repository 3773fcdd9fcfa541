#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Operands of a model, read from a store: blocks of A^, features, targets, original ids. Each rank reads only its own rectangles.

#include "graph/store/store_reader.hpp"
#include "models/layers/activation.hpp"
#include "pmm/grid/layout.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/neighbors/edge_dropout.hpp"
#include "runtime/error.hpp"

#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace orthant::models {

// Orders in which matrices of vertices are numbered: the two orders of the store (docs/design.md 2.2).

inline constexpr pmm::IndexOrder order_p1{"p1"};
inline constexpr pmm::IndexOrder order_p2{"p2"};

/// The store's name of an order of rows. The order must be p1 or p2; otherwise throws Error.
[[nodiscard]] inline graph::Order order_of(pmm::IndexOrder order) {
  ORTHANT_REQUIRE(order == order_p1 || order == order_p2, "no vertex is stored in order ", order.name);
  return order == order_p1 ? graph::Order::p1 : graph::Order::p2;
}

/// Scaling of features as they are read. row: the features of each vertex are scaled to sum 1; zero rows stay zero.
enum class FeatureNorm : std::uint8_t { none, row };
[[nodiscard]] FeatureNorm parse_feature_norm(std::string_view word);

/// Returns the number of non-zeros in this rank's block of A^, or of sparse features, with this placement.
using CountNonzeros = std::function<std::int64_t(pmm::Placement const&)>;

/// Whether A^ equals its transpose, so that one block serves as both.
[[nodiscard]] inline bool is_operator_symmetric(graph::StoreFacts const& facts) {
  return facts.is_symmetric && facts.normalization != graph::Normalization::row;
}

/// Products with A^, or with its adjoint.
enum class AdjacencyProducts : std::uint8_t { direct, adjoint };

/// Whether these products multiply by scales of columns. The transpose of a matrix with normalized rows has normalized columns.
[[nodiscard]] bool scales_columns(graph::StoreFacts const& facts, AdjacencyProducts products);

using AdjacencyKey = std::tuple<pmm::AxisSet, pmm::AxisSet, bool>; // rows, columns, parity

/// Blocks of A^, one per pair of axes and parity, shared by layers. If A is symmetric, a block and its transpose serve two layers.
template<class T>
class AdjacencyBlocks {
 public:
  /// `dropped`: null if no edges are dropped; otherwise, each block whose values the steps fill is appended to it. It must outlive this
  /// object.
  AdjacencyBlocks(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                  std::vector<pmm::DroppedBlock<T>>* dropped = nullptr)
      : grid_(grid),
        store_(store),
        dropped_(dropped) {}

  /// The block with this placement. Collective over the grid's group, because it may read the store.
  [[nodiscard]] pmm::DistSparse<T> get(pmm::Placement const& placement, bool is_even);

 private:
  pmm::ProcessGrid const& grid_;
  graph::GraphStore const& store_;
  std::vector<pmm::DroppedBlock<T>>* dropped_; // null if nothing is dropped
  std::map<AdjacencyKey, pmm::DistSparse<T>> blocks_;
};

/// Lists the arrays of to_csr(), and the block that the store returns.
void plan_csr(pmm::StepPlan& step, std::int64_t num_rows, std::int64_t num_nonzeros, bool has_values);

/// Lists the original ids of a block's rows and columns.
void plan_ids(pmm::StepPlan& step, std::int64_t num_rows, std::int64_t num_columns);

/// Lists the arrays that AdjacencyBlocks makes.
class AdjacencyBlocksPlan {
 public:
  AdjacencyBlocksPlan(graph::StoreFacts const& facts, CountNonzeros num_nonzeros, bool drops_edges = false)
      : facts_(facts),
        num_nonzeros_(std::move(num_nonzeros)),
        drops_edges_(drops_edges) {}

  /// Lists the block with this placement unless it is already listed.
  void get(pmm::StepPlan& step, pmm::Placement const& placement, bool is_even);
  /// Lists the weights that products with the block keep, unless the products of an equal block are already listed.
  void keep_weights(pmm::StepPlan& step, pmm::Placement const& placement, bool is_even,
                    AdjacencyProducts products);
  /// Blocks that are read. All others equal one of these, or its transpose.
  [[nodiscard]] std::vector<pmm::Placement> const& read() const { return read_; }

 private:
  graph::StoreFacts const& facts_;
  CountNonzeros num_nonzeros_;
  bool drops_edges_;
  std::vector<pmm::Placement> read_;
  std::set<AdjacencyKey> blocks_;
  std::set<std::pair<AdjacencyKey, AdjacencyProducts>> weighted_;
};

/// Dense features F[a,b] with this placement, rows in order p2. Collective over the grid's group.
template<class T>
[[nodiscard]] pmm::DistMatrix<T> read_dense_features(pmm::ProcessGrid const& grid,
                                                     graph::GraphStore const& store,
                                                     pmm::Placement const& placement, FeatureNorm norm);

/// Lists the arrays of read_dense_features().
void plan_dense_features(pmm::StepPlan& step, pmm::Placement const& placement, pmm::Lifetime lifetime);

/// Sparse features as a left operand X[a,b], with the transpose that dW = X^T dU needs. Collective over the grid's group.
template<class T>
[[nodiscard]] pmm::DistSparse<T> read_sparse_features(pmm::ProcessGrid const& grid,
                                                      graph::GraphStore const& store,
                                                      pmm::Placement const& placement, FeatureNorm norm);

/// Lists the arrays of read_sparse_features().
void plan_sparse_features(pmm::StepPlan& step, pmm::Placement const& placement, std::int64_t num_nonzeros,
                          bool has_values, FeatureNorm norm);

/// Dropout keys of a block with this placement. Collective over the grid's group.
[[nodiscard]] BlockKeys read_block_keys(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                        pmm::Placement const& placement);
/// Original ids of the vertices at these positions of an order. Not collective. Throws UserError if the store cannot be read.
[[nodiscard]] runtime::Vector<std::int64_t> read_ids(graph::GraphStore const& store, graph::Order order,
                                                     runtime::Range rows);
/// Lists the arrays of read_block_keys().
void plan_block_keys(pmm::StepPlan& step, pmm::Placement const& placement);

} // namespace orthant::models
