#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Activation of a convolution's output Z, with optional norm, dropout and residual (ScaleGNN, arXiv 2604.02651). F is the input of the
// layer; f is a function of pmm/kernels/activation_functions.hpp:
//
//   N = norm(Z)      D = dropout(f(N))      F' = D + F
//
// What is kept for the backward pass:
//
//   f = ReLU, no norm, no residual   F', which overwrites Z; if outputs share memory, a bit per element: 1 if it is positive
//   f = ReLU, no norm, residual      D
//   a norm, or another f             Z. Norms in passes of their own recompute N in the memory of F', which is not read again
//
// RMSNorm with f = ReLU is one pass, which also adds F. In the backward pass dZ overwrites dF', except with a residual in place
// (residual.hpp): then dF' is kept until dF is added to it, and dZ has its own memory.

#include "models/gnn/layers/network_layer.hpp"
#include "models/gnn/layers/residual.hpp"
#include "models/layers/rms_norm.hpp"
#include "pmm/matrix/dist_matrix.hpp"

#include <cstdint>

namespace orthant::models {

/// Memory of one layer's activation. Absent parts take no memory.
template<class T>
struct NetworkActivationMemory {
  GrowingVector<T> output{"orthant::models::activated"};                        // F'
  GrowingVector<runtime::SumOf<T>> inverse_rms{"orthant::models::inverse_rms"}; // of RmsNormState
  GrowingVector<std::uint32_t> passed{"orthant::models::passed"};
  std::unique_ptr<HiddenNormMemory<runtime::SumOf<T>>> own_norm; // by pointer, because few networks have it
};

/// Adds the scratch of a layer's activation to `scratch`.
void plan_activation_scratch(NetworkScratchPlan& scratch, pmm::StepPlan const& step,
                             NetworkLayerPlan const& layer, ActivationParts const& parts);
/// Lists the memory of an activation of `z`. If a residual is added, the result overwrites it. `format`: of activations.
void plan_activation_arrays(pmm::StepPlan& step, pmm::Placement const& z, bool adds_residual,
                            ActivationParts const& parts, runtime::Wire format);

/// Matrices of a convolution or a dense layer that an activation reads and writes.
template<class T>
struct ActivationSite {
  pmm::DistMatrix<T> z;          // Z
  pmm::DistMatrix<T> z_gradient; // dZ, whose memory receives dF' unless a residual is in place
  std::shared_ptr<pmm::Workspace<runtime::SumOf<T>>> workspace;
};

template<class T>
class NetworkActivation {
 public:
  using Sum = runtime::SumOf<T>;

  /// Activation of the matrices of `site`, with which it shares memory. A new one is made for each graph or batch. `scratch` must have its
  /// full size; `parameters` and `residual`, which is null if the activation adds none, must outlive this object. Not collective.
  NetworkActivation(ActivationSite<T> site, ActivationParts const& parts,
                    NetworkLayerParameters<Sum> const& parameters, BlockKeys keys,
                    Residual<T> const* residual, NetworkScratch<T>& scratch,
                    NetworkActivationMemory<T>& memory);

  /// Computes F' from Z. Collective over the column axis if there is a norm; BatchNorm in training is collective over the row axis.
  void forward(runtime::DefaultExec const& exec, Pass pass, Dropout const& dropout);

  /// dF', written by the layer above.
  [[nodiscard]] pmm::DistMatrix<T> const& gradient() const { return gradient_; }
  /// Computes the layer's dZ, and dg, from dF', with the dropout of the last forward(). Collective.
  void backward(runtime::DefaultExec const& exec, Dropout const& dropout);

  /// F', with the row placement of the next layer's input.
  [[nodiscard]] pmm::DistMatrix<T> const& output() const { return output_; }
  /// Number of positive elements of Z after forward(), on this rank. Fences. Not collective.
  [[nodiscard]] std::int64_t num_positive(runtime::DefaultExec const& exec) const;

 private:
  [[nodiscard]] runtime::PassLedger& passes() const { return z_.grid().passes(); }
  [[nodiscard]] bool is_relu() const { return parts_.activation == Activation::relu; }
  /// Whether kernels overwrite a copy of dF', because the residual still needs dF'.
  [[nodiscard]] bool copies_gradient() const { return residual_ != nullptr && residual_->is_in_place(); }
  void make_norm(NetworkScratch<T>& scratch, NetworkActivationMemory<T>& memory);
  /// D := dropout(f(norm(Z))) in several passes.
  void forward_in_passes(runtime::DefaultExec const& exec, Pass pass, Dropout const& dropout) const;
  void backward_in_passes(runtime::DefaultExec const& exec, Dropout const& dropout) const;

  ActivationParts parts_;
  NetworkLayerParameters<Sum> const& parameters_; // owned by the network
  BlockKeys keys_;
  Residual<T> const* residual_;
  pmm::DistMatrix<T> z_, z_gradient_, output_, gradient_;
  RmsNormState<Sum> norm_state_;
  runtime::Vector<std::uint32_t> passed_; // bits that replace F' if its memory is shared
  Boxed<HiddenNorm<T>> own_norm_;
  runtime::Vector<Sum> row_sums_;
  std::shared_ptr<pmm::Workspace<Sum>>
      workspace_; // shared with the layer, which does not run at the same time
};

extern template class NetworkActivation<float>;
extern template class NetworkActivation<double>;
extern template class NetworkActivation<runtime::Bf16Number>;
extern template class NetworkActivation<runtime::Fp16Number>;

// Checks of a layer's output, for messages about failed training.

/// Whether all elements of this rank are finite, and how many are positive. Fence. Not collective.
template<class T>
[[nodiscard]] bool is_finite(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& matrix);
template<class T>
[[nodiscard]] std::int64_t count_positive(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& matrix);

} // namespace orthant::models
