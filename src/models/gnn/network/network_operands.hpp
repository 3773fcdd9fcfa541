#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Operands of a graph network: everything that it needs of a graph or of a batch of vertices, in a plain struct that samplers fill in. Also
// the network's input: the features, with dropout in training.

#include "models/gnn/aggregation/aggregation.hpp"
#include "models/gnn/aggregation/self_term.hpp"
#include "models/gnn/operands/graph_operands.hpp"
#include "models/gnn/operands/relation_operands.hpp"
#include "models/gnn/operands/trained_features.hpp"
#include "models/gnn/plan/network_settings.hpp"
#include "runtime/arrays/allocation.hpp"

#include <optional>
#include <vector>

namespace orthant::models {

// Input of a graph network. Features are dense or sparse (sparse features are never converted to dense), fixed or trained
// (gnn/operands/trained_features.hpp). If activations have 16 bits, dense features are rounded: fixed features once when they are bound, trained
// features in each pass.

using runtime::GrowingVector;

/// Features of a graph or of a batch: `dense` or `sparse`. Trained features are the parameter of the whole graph, also in a batch.
template<class T>
struct InputFeatures {
  bool is_sparse = false;
  pmm::DistMatrix<T> dense;
  pmm::DistSparse<T> sparse;
  BlockKeys keys;        // keys of their dropout
  bool may_move = false; // dense features may move to the network's memory: no other object reads them
  std::optional<FeatureRows> rows{}; // of trained features that a batch reads; nullopt: all
  std::shared_ptr<std::vector<std::int64_t> const>
      ids{}; // [rows of the block] original ids, of trained features
  runtime::Vector<std::int8_t>
      trains_row{}; // [rows of the block] of trained features: 0 if it keeps its values; empty: all are trained

  [[nodiscard]] bool are_trained() const { return dense.layout().storage == pmm::Storage::flat_sharded; }
};

/// Reads the features with this placement. Flat-sharded features are trained, and start from the stored values, or if only rows of types
/// without features are trained, from random values there (Glorot; each type's rows are a matrix).
/// Collective over the grid's group.
template<class T>
[[nodiscard]] InputFeatures<T>
read_input_features(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                    pmm::Placement const& placement, NetworkSettings const& settings);

/// List the arrays of the features of a graph or a batch, and the arrays of a NetworkInput with dropout. `num_nonzeros`: of sparse
/// features. `lifetime`: of dense features that are not trained (lifetime_of_features()).
void plan_input_features(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                         FeatureNorm norm, std::optional<std::int64_t> num_nonzeros, pmm::Lifetime lifetime);
void plan_dropped_features(pmm::StepPlan& step, pmm::Placement const& placement,
                           std::optional<std::int64_t> num_nonzeros, runtime::Wire format);
/// Lists the arrays of rounded dense features, which are freed after the first step if A^ F0 is kept.
void plan_rounded_features(pmm::StepPlan& step, pmm::Placement const& placement, runtime::Wire format,
                           bool keeps_first_aggregate);

/// T: the element type of activations.
template<class T>
class NetworkInput {
 public:
  using Sum = runtime::SumOf<T>;

  /// Replaces the features, which the network reads with the placement `read`. With `dropout_probability` above 0 it keeps a second copy,
  /// in memory that only grows. Dense features that are rounded to 16 bits, or may move, lie in `room` until release() unless `room` is
  /// empty. Not collective. Throws Error if a finite number does not fit fp16.
  void bind(InputFeatures<Sum> features, pmm::Placement const& read, double dropout_probability,
            runtime::Vector<T> const& room);

  [[nodiscard]] bool is_sparse() const { return features_.is_sparse; }

  /// dense() or sparse() := the features, with dropout if its probability is above 0. Enqueues on exec. Collective over the third axis
  /// of trained features.
  void prepare(runtime::DefaultExec const& exec, Dropout const& dropout);
  [[nodiscard]] pmm::DistMatrix<T> const& dense() const { return uses_dropped_ ? dropped_dense_ : dense_; }
  [[nodiscard]] pmm::DistSparse<Sum> const& sparse() const {
    return uses_dropped_ ? dropped_sparse_ : features_.sparse;
  }

  /// Trained features: gradient := the gradient by the features, in place, from the gradient by dense() and the mask of
  /// the last prepare().
  void backward(runtime::DefaultExec const& exec, Dropout const& dropout,
                pmm::DistMatrix<T> const& gradient) const;
  /// Gradient of the parameter from the gradient by the features.
  void write_gradient(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& gradient,
                      pmm::DistMatrix<Sum> const& of_parameter) const;

  /// Frees dense features that are not read again because A^ F0 is kept.
  void release();

 private:
  void bind_dense(pmm::Placement const& read, runtime::Vector<T> const& room);
  void drop(runtime::DefaultExec const& exec, Dropout const& dropout, pmm::DistMatrix<T> const& from,
            pmm::DistMatrix<T> const& to) const;

  InputFeatures<Sum> features_;
  std::optional<FeatureRows> gathered_rows_; // of trained features that are not read in place
  bool uses_dropped_ = false;
  pmm::DistMatrix<Sum> read_; // features_.dense, or the rows that are gathered from it
  pmm::DistMatrix<T> dense_;  // read_, or the rounded copy
  pmm::DistMatrix<T> dropped_dense_;
  pmm::DistSparse<Sum> dropped_sparse_;
  GrowingVector<Sum> gathered_numbers_{"orthant::models::gathered_features"};
  GrowingVector<T> rounded_numbers_{rounded_label};
  GrowingVector<T> dropped_numbers_{"orthant::models::dropped_features"};
  GrowingVector<Sum> dropped_values_{"orthant::models::dropped_values"};
  GrowingVector<Sum> dropped_transposed_values_{"orthant::models::dropped_values"};

  static constexpr auto rounded_label = "orthant::models::rounded_features";
};

extern template class NetworkInput<float>;
extern template class NetworkInput<double>;
extern template class NetworkInput<runtime::Bf16Number>;
extern template class NetworkInput<runtime::Fp16Number>;

/// Copies share memory.
template<class T>
struct NetworkOperands {
  NetworkPlan plan; // with the extents of this graph or batch; weights have the placements of the parameters
  std::vector<Adjacency<T>>
      adjacency; // [layers] A^ of plan.layers[l] and its adjoint, if the layer aggregates
  std::vector<runtime::Vector<std::int64_t>>
      column_ids; // [layers] original ids that break ties of maxima; empty if owners' edges have ids
  InputFeatures<T> features;                   // with placement plan.features()
  std::vector<ResidualPath<T>> residuals;      // [layers]; empty if no layer is residual
  std::vector<ResidualPath<T>> self_paths;     // [layers]; empty if no layer reads the vertex itself
  std::vector<ResidualPath<T>> teleport_paths; // [sites of plan.teleport]
  std::vector<ResidualPath<T>> jump_paths;     // [layers of plan.jump]
  // [layers] keys of the rows of plan.layers[l].output; empty without dropout
  std::vector<BlockKeys> output_keys;
  std::vector<RelationOperand<T>> relations; // [layers] in place of `adjacency`; empty without relations
  std::vector<pmm::DroppedBlock<T>>
      dropped; // fills the values of `adjacency` in each pass; empty: values are fixed

  [[nodiscard]] runtime::Vector<std::int64_t> column_ids_of(std::size_t l) const {
    return column_ids.empty() ? runtime::Vector<std::int64_t>{} : column_ids[l];
  }
  [[nodiscard]] RelationOperand<T> relations_of(std::size_t l) const {
    return relations.empty() ? RelationOperand<T>{} : relations[l];
  }
  [[nodiscard]] ResidualPath<T> residual(std::size_t l) const {
    return residuals.empty() ? ResidualPath<T>{} : residuals[l];
  }
  [[nodiscard]] ResidualPath<T> self_path(std::size_t l) const {
    return self_paths.empty() ? ResidualPath<T>{} : self_paths[l];
  }
};

/// Whether dropout of layer l's output needs the ids of its rows.
[[nodiscard]] bool has_output_keys(NetworkPlan const& plan, NetworkSettings const& settings, std::size_t l);

/// Operands of the whole graph. Reads this rank's blocks. Collective over the grid's group.
template<class T>
[[nodiscard]] NetworkOperands<T>
make_full_graph_operands(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                         NetworkPlan const& plan, NetworkSettings const& settings);
/// Like the function above, with features and, in the schedule `rows`, optionally a block that have been read before. `dropped`: parts of
/// that block with dropped edges.
template<class T>
[[nodiscard]] NetworkOperands<T>
make_full_graph_operands(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                         NetworkPlan const& plan, NetworkSettings const& settings, InputFeatures<T> features,
                         std::optional<OwnedAdjacency<T>> owned,
                         std::vector<pmm::DroppedBlock<T>> dropped = {});

/// Whether the layer needs the original ids of the columns of its block.
[[nodiscard]] inline bool needs_column_ids(NetworkLayerPlan const& layer) {
  return layer.takes_maximum && !layer.owners;
}

/// Number of edges of a layer in cells of these sizes, with the features that it reads.
[[nodiscard]] inline pmm::EdgeCounts edge_counts_of(NetworkLayerPlan const& layer,
                                                    pmm::CellSizes const& sizes, std::int64_t num_edges) {
  return {sizes.num_rows(), sizes.num_columns(), num_edges, layer.num_edge_features()};
}

/// Lists the blocks of A^ of all layers.
void plan_adjacency(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                    NetworkEpochTraits const& traits);

/// Lists what the products with these blocks keep.
void plan_adjacency_products(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                             NetworkEpochTraits const& traits);

/// Lists the block, or blocks, of A^ of the whole graph: with what products keep, and with edges if layers read them.
void plan_whole_blocks(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                       NetworkSettings const& settings, NetworkEpochTraits const& traits);

/// Lists the arrays of make_full_graph_operands(). `features`: lifetime of dense features.
void plan_operands(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                   NetworkSettings const& settings, NetworkEpochTraits const& traits, pmm::Lifetime features);

} // namespace orthant::models
