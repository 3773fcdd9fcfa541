#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Graph convolutional network of any depth (Kipf & Welling, arXiv 1609.02907), over any grid, with the parts
// of ScaleGNN (arXiv 2604.02651), each of which may be absent:
//
//   F_0 = X W_in + b_in, else dropout(X)
//   Z_l = A^ F_l W_l + b_l      F_{l+1} = dropout(relu(rms(Z_l) g_l)) + F_l
//   logits = F_L W_out + b_out, else Z_{L-1}
//
// The same seed gives the same weights and the same dropout on every grid, for every permutation of the
// store. A network is parameters, which others may share, operands of one graph or batch, and memory for its
// activations:
//
//   auto parameters = std::make_shared<NetworkParameters<float>>(grid, plan, settings);
//   GraphNetwork<float> network(grid, settings, parameters);
//   network.unbind();                                                              // every step
//   network.rebind(operands_of_a_batch);
//   loss.loss_and_gradient(exec, network.forward(exec, Pass::training, step, phases),
//   network.logits_gradient()); network.backward(exec, phases); // fills the gradients

#include "models/gnn/network/network_passes.hpp"
#include "models/parameters/network.hpp"

#include <memory>
#include <vector>

namespace orthant::models {

/// T: the scalar of training. Activations and their gradients are held in settings.operand_format; 16 bits need
/// T = float (Error).
template<class T>
class GraphNetwork final : public Network<T> {
 public:
  /// A network that waits for rebind(). `grid` must outlive it. Not collective.
  GraphNetwork(pmm::ProcessGrid const& grid, NetworkSettings const& settings,
               std::shared_ptr<NetworkParameters<T>> parameters);

  /// The whole graph, with parameters of its own. Collective over the grid's group. Throws UserError where
  /// the store has no features or labels.
  GraphNetwork(pmm::ProcessGrid const& grid, graph::GraphStore const& store, NetworkSettings const& settings);

  /// Runs on this graph or batch from now on. Activations lie in memory that grows only, so a batch no larger
  /// than those before allocates no array. Throws Error where the operands' weights do not lie as the
  /// parameters do. Not collective; not while a pass is under way.
  void rebind(NetworkOperands<T> operands) { passes_->rebind(std::move(operands)); }
  /// Frees the layers and their ways between placements, before those of the next operands are made. Until rebind() nothing else may be
  /// called.
  void unbind() { passes_->unbind(); }

  pmm::DistMatrix<T> const& forward(runtime::DefaultExec const& exec, Pass pass, std::uint64_t step,
                                    runtime::PhaseTimes& phases) override {
    return passes_->forward(exec, pass, step, phases);
  }
  void backward(runtime::DefaultExec const& exec, runtime::PhaseTimes& phases) override {
    passes_->backward(exec, phases);
  }

  [[nodiscard]] pmm::DistMatrix<T> const& logits() const { return passes_->logits(); }
  /// What layer l leaves to those after it: after norm, activation and residual, if it has them. The head counts
  /// as one more layer. Throws Error if activations have 16 bits, or if it is not kept (NetworkSettings::keeps_outputs).
  [[nodiscard]] pmm::DistMatrix<T> const& output_of_layer(std::size_t l) const {
    return passes_->output_of_layer(l);
  }
  /// In place of the logits if activations are held in 16 bits, or if outputs share memory (gnn/plan/network_settings).
  [[nodiscard]] pmm::DistMatrix<T> const& logits_gradient() const override {
    return passes_->logits_gradient();
  }
  [[nodiscard]] std::vector<Parameter<T>>& parameters() override { return parameters_->list(); }
  [[nodiscard]] std::int64_t num_parameters() const { return parameters_->num_numbers(); }
  [[nodiscard]] std::shared_ptr<NetworkParameters<T>> const& shared_parameters() const { return parameters_; }
  [[nodiscard]] NetworkPlan const& plan() const { return passes_->plan(); }
  /// What moves between owners of vertices (schedule rows); null: all rows.
  [[nodiscard]] std::shared_ptr<pmm::NeededRows const> const& needed_rows() const {
    return passes_->needed_rows();
  }
  [[nodiscard]] runtime::Wire narrowest_format() const override {
    auto const fp16 = runtime::Wire::fp16;
    return settings_.operand_format == fp16 ? fp16 : settings_.wire;
  }
  [[nodiscard]] bool repeats_itself() const override {
    return settings_.dropout == 0 && settings_.attention_dropout == 0 && settings_.edge_dropout == 0 &&
           settings_.wire == runtime::Wire::native &&
           !traits_of(settings_.model, settings_.aggregator).takes_maximum; // it is reduced by the host
  }
  [[nodiscard]] bool overwrites_outputs() const override { return shares_outputs(plan(), settings_); }
  /// The head counts as one more layer.
  [[nodiscard]] std::int64_t first_layer_not_finite(runtime::DefaultExec const& exec) const override {
    return passes_->first_layer_not_finite(exec);
  }
  [[nodiscard]] std::vector<std::int64_t> dead_layers(runtime::DefaultExec const& exec) const override {
    return passes_->dead_layers(exec);
  }

 private:
  NetworkSettings settings_;
  std::shared_ptr<NetworkParameters<T>> parameters_;
  std::unique_ptr<NetworkPasses<T>> passes_;
};

extern template class GraphNetwork<float>;
extern template class GraphNetwork<double>;

} // namespace orthant::models
