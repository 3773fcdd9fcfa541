#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Everything of a graph, or of a batch of its vertices, that a GCN runs on. A plain struct: whoever samples a
// batch fills it in.

#include "models/gnn/layers/aggregation.hpp"
#include "models/gnn/layers/self_term.hpp"
#include "models/gnn/operands/graph_operands.hpp"
#include "models/gnn/plan/network_settings.hpp"
#include "runtime/arrays/allocation.hpp"

#include <optional>
#include <vector>

namespace orthant::models {

// What enters a GCN: features as they are stored (dense, or sparse and never made dense), or features that
// are trained; with dropout in training. Dense features become numbers of 16 bits if activations are: once when they
// are bound, those that are trained in each pass.

using runtime::GrowingVector;

/// Features of a graph or of a batch, one of both kinds.
template<class T>
struct InputFeatures {
  bool is_sparse = false;
  pmm::DistMatrix<T> dense;
  pmm::DistSparse<T> sparse;
  BlockKeys keys;        // what their dropout is keyed by
  bool may_move = false; // by a network, to memory of its own: nobody else reads these dense features

  [[nodiscard]] pmm::Placement const& placement() const {
    return is_sparse ? sparse.placement() : dense.placement();
  }
};

/// Reads the features of that placement. Flat-sharded: trained, and starts from what is stored. Collective
/// over the grid's group.
template<class T>
[[nodiscard]] InputFeatures<T> read_input_features(pmm::ProcessGrid const& grid,
                                                   graph::GraphStore const& store,
                                                   pmm::Placement const& placement, FeatureNorm norm);

/// Lists the arrays of read_input_features(); and those of a NetworkInput that drops features out.
/// `num_nonzeros`: of sparse features. `lifetime`: of dense ones that are not trained (gnn/network_arrays).
void plan_input_features(pmm::StepPlan& step, graph::StoreFacts const& facts, pmm::Placement const& placement,
                         FeatureNorm norm, std::optional<std::int64_t> num_nonzeros, pmm::Lifetime lifetime);
void plan_dropped_features(pmm::StepPlan& step, pmm::Placement const& placement,
                           std::optional<std::int64_t> num_nonzeros, runtime::Wire format);
/// Lists those of rounded dense features, let go after the first step if A^ F0 is kept.
void plan_rounded_features(pmm::StepPlan& step, pmm::Placement const& placement, runtime::Wire format,
                           bool keeps_first_aggregate);

/// T: of the numbers of activations.
template<class T>
class NetworkInput {
 public:
  using Sum = runtime::SumOf<T>;

  /// Takes other features in place of the last ones. `dropout_probability` above 0 keeps a second copy, in
  /// memory that grows only. `room`: memory for dense features, or none. They lie there until
  /// release() if they are rounded to 16 bits or may move. Not collective. Throws Error if a finite number does not fit fp16.
  void bind(InputFeatures<Sum> features, double dropout_probability, runtime::Vector<T> const& room);

  [[nodiscard]] bool is_sparse() const { return features_.is_sparse; }

  /// dense() or sparse() := the features, dropped out where the probability is above 0. Enqueues on exec.
  void prepare(runtime::DefaultExec const& exec, Dropout const& dropout);
  [[nodiscard]] pmm::DistMatrix<T> const& dense() const { return uses_dropped_ ? dropped_dense_ : dense_; }
  [[nodiscard]] pmm::DistSparse<Sum> const& sparse() const {
    return uses_dropped_ ? dropped_sparse_ : features_.sparse;
  }

  /// Trained features: gradient (by dense()) := gradient by the features, in place, for the mask of the last
  /// prepare().
  void backward(runtime::DefaultExec const& exec, Dropout const& dropout,
                pmm::DistMatrix<T> const& gradient) const;

  /// Lets go of dense features that nobody will read again: A^ F0 is kept instead.
  void release();

 private:
  void bind_dense(runtime::Vector<T> const& room);
  [[nodiscard]] bool is_trained() const;

  InputFeatures<Sum> features_;
  bool uses_dropped_ = false;
  pmm::DistMatrix<T> dense_; // features_.dense, or that rounded
  pmm::DistMatrix<T> dropped_dense_;
  pmm::DistSparse<Sum> dropped_sparse_;
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

/// Copies share the numbers.
template<class T>
struct NetworkOperands {
  NetworkPlan plan; // of this graph's or batch's extents; weights lie as the parameters do
  std::vector<Adjacency<T>>
      adjacency; // [layers] with what the adjoint needs: A^ of plan.layers[l], if it aggregates
  std::vector<runtime::Vector<std::int64_t>>
      column_ids; // [layers] original ids by which ties of maxima are broken, or none: between owners edges have them
  InputFeatures<T> features;                   // of plan.features()
  std::vector<ResidualPath<T>> residuals;      // [layers], or none where no layer is residual
  std::vector<ResidualPath<T>> self_paths;     // [layers], or none where no layer has a self weight
  std::vector<ResidualPath<T>> teleport_paths; // [sites of plan.teleport]
  // [layers] of the rows of plan.layers[l].output; empty where nothing is dropped
  std::vector<BlockKeys> output_keys;
  std::vector<pmm::DroppedBlock<T>>
      dropped; // what fills the values of `adjacency` in each pass; none: they are fixed

  [[nodiscard]] runtime::Vector<std::int64_t> column_ids_of(std::size_t l) const {
    return column_ids.empty() ? runtime::Vector<std::int64_t>{} : column_ids[l];
  }
  [[nodiscard]] ResidualPath<T> residual(std::size_t l) const {
    return residuals.empty() ? ResidualPath<T>{} : residuals[l];
  }
  [[nodiscard]] ResidualPath<T> self_path(std::size_t l) const {
    return self_paths.empty() ? ResidualPath<T>{} : self_paths[l];
  }
};

/// Whether the rows of layer l's output need the ids that dropout is keyed by.
[[nodiscard]] bool has_output_keys(NetworkPlan const& plan, NetworkSettings const& settings, std::size_t l);

/// Those of the whole graph. Reads this rank's blocks: collective over the grid's group.
template<class T>
[[nodiscard]] NetworkOperands<T>
make_full_graph_operands(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                         NetworkPlan const& plan, NetworkSettings const& settings);
/// The same with features that have been read, and the block of owners, if it has been.
template<class T>
[[nodiscard]] NetworkOperands<T>
make_full_graph_operands(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                         NetworkPlan const& plan, NetworkSettings const& settings, InputFeatures<T> features,
                         std::optional<OwnedAdjacency<T>> owned);

/// Whether layers ask for the original ids of the columns of their own blocks.
[[nodiscard]] inline bool needs_column_ids(NetworkLayerPlan const& layer) {
  return layer.takes_maximum && !layer.owners;
}

/// Lists the blocks of A^ of all layers.
void plan_adjacency(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                    NetworkEpochTraits const& traits);

/// Lists what their products keep beside them.
void plan_adjacency_products(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                             NetworkEpochTraits const& traits);

/// Lists the arrays of make_full_graph_operands(), with dense features that are held so long.
void plan_operands(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                   NetworkSettings const& settings, NetworkEpochTraits const& traits, pmm::Lifetime features);

} // namespace orthant::models
