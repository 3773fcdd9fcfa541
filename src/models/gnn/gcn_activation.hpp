#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What becomes of a convolution's output Z before the next layer reads it; norm and residual may be absent
// (ScaleGNN, arXiv 2604.02651):
//
//   N = rms(Z) g      D = dropout(relu(N))      F' = D + F, F what the layer read
//
// With both absent F' takes Z's place. With a norm Z is kept for the backward pass; with a residual alone D.

#include "models/core/rms_norm.hpp"
#include "models/gnn/gcn_layer.hpp"
#include "models/gnn/residual.hpp"

namespace orthant::models {

/// Memory that the activation of one layer has to itself; none is taken for an absent part.
template<class T>
struct GcnActivationMemory {
  GrowingVector<T> output{"orthant::models::activated"};        // F'
  GrowingVector<T> inverse_rms{"orthant::models::inverse_rms"}; // of RmsNormState
  GrowingVector<std::uint32_t> passed{"orthant::models::passed"};
};

/// Memory that the activations of all layers use in turn.
template<class T>
struct GcnActivationScratch {
  GrowingVector<T> residual_gradient{"orthant::models::residual_gradient"}; // dF' where F lies
  GrowingVector<T> row_sums{"orthant::models::row_sums"};
};

/// The same before it exists. The longest of what the activations need.
struct GcnActivationScratchPlan {
  std::int64_t residual_gradient = 0; // numbers
  std::int64_t row_sums = 0;

  void add(pmm::StepPlan const& step, GcnLayerPlan const& layer, bool has_norm);
  /// Lists the arrays.
  void list(pmm::StepPlan& step) const;
};

/// Lists the memory that the activation of a layer has to itself.
void plan_activation_arrays(pmm::StepPlan& step, GcnLayerPlan const& layer, bool has_norm);

template<class T>
class GcnActivation {
 public:
  /// Of `layer`, whose output and gradient it shares; made anew for each graph or batch. `scratch` has its
  /// full size already. Not collective.
  GcnActivation(GcnLayer<T> const& layer, GcnLayerParameters<T> parameters, BlockKeys keys,
                ResidualPath<T> residual, GcnActivationScratch<T>& scratch, GcnActivationMemory<T>& memory);

  /// Brings F to where F' lies, ahead of the layer's products. Collective over the group where residual.
  void start(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& layer_input);
  /// F' from Z. Collective over the column axis where there is a norm.
  void forward(runtime::DefaultExec const& exec, Dropout const& dropout);

  /// dZ from dF', in place, and dg, for the probability of the last forward(). A residual sends dF' to where
  /// F lies first. Collective.
  void backward(runtime::DefaultExec const& exec, double probability);
  /// dF += dF', once the layer has written its dF.
  void finish_backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& input_gradient);

  /// F', by the rows of the next layer's input.
  [[nodiscard]] pmm::DistMatrix<T> const& output() const { return output_; }

 private:
  [[nodiscard]] bool has_norm() const { return parameters_.norm_scale.length() > 0; }

  GcnLayerParameters<T> parameters_;
  BlockKeys keys_;
  ResidualPath<T> residual_;
  pmm::DistMatrix<T> z_, gradient_, output_, residual_gradient_;
  RmsNormState<T> norm_state_;
  runtime::Vector<T> row_sums_;
  std::shared_ptr<pmm::Workspace<T>> workspace_; // of the layer: what the two do never overlaps
};

extern template class GcnActivation<float>;
extern template class GcnActivation<double>;

} // namespace orthant::models
