#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What enters layer 0: features as they are stored (dense, or sparse and never made dense), or features that
// are trained; with dropout in training.

#include "models/graph_operands.hpp"

namespace orthant::models {

template<class T>
class GcnInput {
 public:
  /// Reads the features of `placement` (F or X of layer 0). Flat-sharded: trained, and starts from what is
  /// stored. `dropout_probability` above 0 keeps a second copy. Collective over the grid's group.
  GcnInput(pmm::ProcessGrid const& grid, graph::GraphStore const& store, pmm::Placement const& placement,
           FeatureNorm norm, double dropout_probability);

  [[nodiscard]] bool is_sparse() const { return is_sparse_; }

  /// dense() or sparse() := the features, dropped out where the probability is above 0. Enqueues on exec.
  void prepare(runtime::DefaultExec const& exec, Dropout const& dropout);
  [[nodiscard]] pmm::DistMatrix<T> const& dense() const { return uses_dropped_ ? dropped_dense_ : dense_; }
  [[nodiscard]] pmm::DistSparse<T> const& sparse() const { return uses_dropped_ ? dropped_sparse_ : sparse_; }

  /// Trained features: the parameter itself.
  [[nodiscard]] pmm::DistMatrix<T> const& parameter() const { return dense_; }
  /// gradient (by dense()) := gradient by parameter(), in place, for the mask of the last prepare().
  void backward(runtime::DefaultExec const& exec, Dropout const& dropout,
                pmm::DistMatrix<T> const& gradient) const;

  /// Frees dense features that nobody will read again: A^ F0 is kept instead.
  void release() { dense_ = {}; }

 private:
  bool is_sparse_;
  bool uses_dropped_ = false;
  BlockKeys keys_;
  pmm::DistMatrix<T> dense_, dropped_dense_;
  pmm::DistSparse<T> sparse_, dropped_sparse_;
};

extern template class GcnInput<float>;
extern template class GcnInput<double>;

} // namespace orthant::models
