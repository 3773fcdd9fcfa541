#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What becomes of a convolution's output Z before the next layer reads it; norm and residual may be absent
// (ScaleGNN, arXiv 2604.02651):
//
//   N = norm(Z)      D = dropout(f(N))      F' = D + F, F what the layer read, f ReLU, ELU or GELU
//
// With both absent, and f = ReLU, F' takes Z's place; if outputs share memory, a bit per element tells what passed. With a
// norm, or another f, Z is kept for the backward pass; with a residual alone D. LayerNorm and BatchNorm make N again in the
// place of F', which nothing reads any more. F is added by the kernel that writes F', if f = ReLU. Backward, dZ takes the
// place of dF', except for a residual within the rank: then dF' stays where it is, until dF is added to it, and dZ has memory
// of its own.

#include "models/gnn/layers/network_layer.hpp"
#include "models/gnn/layers/self_term.hpp"
#include "models/layers/rms_norm.hpp"
#include "pmm/matrix/dist_matrix.hpp"

#include <cstdint>

namespace orthant::models {

/// Memory that the activation of one layer has to itself; none is taken for an absent part.
template<class T>
struct NetworkActivationMemory {
  GrowingVector<T> output{"orthant::models::activated"};                        // F'
  GrowingVector<runtime::SumOf<T>> inverse_rms{"orthant::models::inverse_rms"}; // of RmsNormState
  GrowingVector<std::uint32_t> passed{"orthant::models::passed"};
  std::unique_ptr<CenteredNormMemory<runtime::SumOf<T>>> centered; // apart, as few networks have it
};

/// Adds to `scratch` what the activation of a layer needs.
void plan_activation_scratch(NetworkScratchPlan& scratch, pmm::StepPlan const& step,
                             NetworkLayerPlan const& layer, ActivationParts const& parts);
/// Lists the memory that the activation of a layer has to itself. `format`: of activations.
void plan_activation_arrays(pmm::StepPlan& step, NetworkLayerPlan const& layer, ActivationParts const& parts,
                            runtime::Wire format);

template<class T>
class NetworkActivation {
 public:
  using Sum = runtime::SumOf<T>;

  /// Of `layer`, whose output and gradient it shares; made anew for each graph or batch. `scratch` has its
  /// full size already, and `parameters` outlive it. Not collective.
  NetworkActivation(NetworkLayer<T> const& layer, ActivationParts const& parts,
                    NetworkLayerParameters<Sum> const& parameters, BlockKeys keys, ResidualPath<Sum> residual,
                    NetworkScratch<T>& scratch, NetworkActivationMemory<T>& memory);

  /// Of a residual: brings F to where F' lies, ahead of the layer's products, unless it lies there. Collective over
  /// the group.
  void start(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& layer_input);
  /// F' from Z. Collective over the column axis if there is a norm, of BatchNorm in training over the row axis.
  void forward(runtime::DefaultExec const& exec, Pass pass, Dropout const& dropout);

  /// dF', for the layer above to write.
  [[nodiscard]] pmm::DistMatrix<T> const& gradient() const { return gradient_; }
  /// The layer's dZ from dF', and dg, for the dropout of the last forward(). A residual sends dF' to where
  /// F lies first. Collective.
  void backward(runtime::DefaultExec const& exec, Dropout const& dropout);
  /// dF + dF', once the layer has written its dF; it lies where dF' of the layer below is read.
  pmm::DistMatrix<T> const& finish_backward(runtime::DefaultExec const& exec,
                                            pmm::DistMatrix<T> const& input_gradient);

  /// F', by the rows of the next layer's input.
  [[nodiscard]] pmm::DistMatrix<T> const& output() const { return output_; }
  /// Of Z after forward(), on this rank. Fences; not collective.
  [[nodiscard]] std::int64_t num_positive(runtime::DefaultExec const& exec) const;

 private:
  [[nodiscard]] bool has_norm() const { return parameters_.norm_scale.length() > 0; }
  [[nodiscard]] runtime::PassLedger& passes() const { return z_.grid().passes(); }
  [[nodiscard]] bool is_smooth() const { return activation_ != Activation::relu; }
  void forward_smooth(runtime::DefaultExec const& exec, Dropout const& dropout);
  void backward_smooth(runtime::DefaultExec const& exec, Dropout const& dropout);
  void forward_centered(runtime::DefaultExec const& exec, Pass pass, Dropout const& dropout);
  void backward_centered(runtime::DefaultExec const& exec, Dropout const& dropout);
  void make_centered(NetworkLayer<T> const& layer, Norm kind, NetworkScratch<T>& scratch,
                     NetworkActivationMemory<T>& memory);

  Activation activation_;
  NetworkLayerParameters<Sum> const& parameters_; // of the network
  BlockKeys keys_;
  ResidualPath<Sum> residual_;
  pmm::DistMatrix<T> z_, z_gradient_, output_, gradient_;
  pmm::DistMatrix<T> addend_;            // F, where there is a residual
  pmm::DistMatrix<T> residual_gradient_; // dF' where F lies, if that is elsewhere
  RmsNormState<Sum> norm_state_;
  bool keeps_mask_;
  runtime::Vector<std::uint32_t> passed_; // if it keeps a mask: F' does not stay
  Boxed<CenteredNorm<Sum>> centered_;
  runtime::Vector<Sum> row_sums_;
  std::shared_ptr<pmm::Workspace<Sum>> workspace_; // of the layer: what the two do never overlaps
};

extern template class NetworkActivation<float>;
extern template class NetworkActivation<double>;
extern template class NetworkActivation<runtime::Bf16Number>;
extern template class NetworkActivation<runtime::Fp16Number>;

// What is asked of the output of a layer when a training goes wrong.

/// Of this rank's numbers: whether all are finite, and how many are positive. Fence; not collective.
template<class T>
[[nodiscard]] bool is_finite(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& matrix);
template<class T>
[[nodiscard]] std::int64_t count_positive(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& matrix);

} // namespace orthant::models
