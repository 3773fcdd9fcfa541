#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What enters a GCN: features as they are stored (dense, or sparse and never made dense), or features that
// are trained; with dropout in training. Dense features become numbers of 16 bits if activations are: once when they
// are bound, those that are trained in each pass.

#include "models/gnn/operands/graph_operands.hpp"
#include "runtime/arrays/allocation.hpp"

#include <optional>

namespace orthant::models {

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

} // namespace orthant::models
