#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Graph network of any depth on any grid: graph convolutions (Kipf & Welling, arXiv 1609.02907), with the optional parts of
// ScaleGNN (arXiv 2604.02651):
//
//   F_0 = X W_in + b_in, or dropout(X) without an input projection
//   Z_l = A^ F_l W_l + b_l      F_{l+1} = dropout(relu(rms(Z_l) g_l)) + F_l
//   logits = F_L W_out + b_out, or Z_{L-1} without a head
//
// The same seed gives the same weights and the same dropout on every grid and for every permutation of the store. A network
// consists of parameters, which networks can share, the operands of one graph or batch, and memory for its activations:
//
//   auto parameters = std::make_shared<NetworkParameters<float>>(grid, plan, settings);
//   GraphNetwork<float> network(grid, settings, parameters);
//   network.unbind();                                                              // every step
//   network.rebind(operands_of_a_batch);
//   auto const& logits = network.forward(exec, Pass::training, step, phases);
//   loss.loss_and_gradient(exec, logits, network.logits_gradient());
//   network.backward(exec, phases);                                                // fills the gradients

#include "models/gnn/network/network_passes.hpp"
#include "models/parameters/network.hpp"
#include "models/training/trainer.hpp"

#include <memory>
#include <vector>

namespace orthant::models {

/// T: the scalar type of training. Activations and their gradients are stored in settings.operand_format; a 16-bit format requires
/// T = float, otherwise the constructor throws Error.
template<class T>
class GraphNetwork final : public Network<T> {
 public:
  /// A network without operands: call rebind() before any other function. `grid` must outlive it. Not collective.
  GraphNetwork(pmm::ProcessGrid const& grid, NetworkSettings const& settings,
               std::shared_ptr<NetworkParameters<T>> parameters);

  /// A network on the whole graph, with its own parameters. The store must have features and labels; otherwise throws UserError.
  /// Collective over the grid's group.
  GraphNetwork(pmm::ProcessGrid const& grid, graph::GraphStore const& store, NetworkSettings const& settings);

  /// Sets the graph or batch for all further passes. The memory of activations only grows, so a batch that is not larger than the
  /// earlier ones allocates no array. The weights in the operands' plan must have the placements of the parameters; otherwise throws Error.
  /// Not collective. Must not be called between forward() and backward().
  void rebind(NetworkOperands<T> operands) { passes_->rebind(std::move(operands)); }
  /// Frees the layers and their communication plans, so that they do not exist together with those of the next operands. Afterwards only
  /// rebind() may be called.
  void unbind() { passes_->unbind(); }

  pmm::DistMatrix<T> const& forward(runtime::DefaultExec const& exec, Pass pass, std::uint64_t step,
                                    runtime::PhaseTimes& phases) override {
    return passes_->forward(exec, pass, step, phases);
  }
  void backward(runtime::DefaultExec const& exec, runtime::PhaseTimes& phases) override {
    passes_->backward(exec, phases);
  }

  [[nodiscard]] pmm::DistMatrix<T> const& logits() const { return passes_->logits(); }
  /// Output of layer l after norm, activation and residual, if it has them. The head counts as one more layer. Activations must
  /// not have 16 bits, and the output must be kept (NetworkSettings::keeps_outputs); otherwise throws Error.
  [[nodiscard]] pmm::DistMatrix<T> const& output_of_layer(std::size_t l) const {
    return passes_->output_of_layer(l);
  }
  /// Shares the memory of the logits if activations have 16 bits or outputs share memory (gnn/plan/network_settings.hpp).
  [[nodiscard]] pmm::DistMatrix<T> const& logits_gradient() const override {
    return passes_->logits_gradient();
  }
  [[nodiscard]] std::vector<Parameter<T>>& parameters() override { return parameters_->list(); }
  [[nodiscard]] std::int64_t num_parameters() const { return parameters_->num_numbers(); }
  [[nodiscard]] std::shared_ptr<NetworkParameters<T>> const& shared_parameters() const { return parameters_; }
  [[nodiscard]] NetworkPlan const& plan() const { return passes_->plan(); }
  /// Rows that ranks exchange in the schedule `rows`; null: all rows.
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
           !traits_of(settings_.model, settings_.aggregator).takes_maximum; // reduced by the host
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

// A graph network on fixed operands, with its trainer: on the whole graph, or on the rows that pruning keeps. Several of these can
// share parameters and the optimizer's state, and train in turn.

template<class T>
struct TrainedNetwork {
  /// All references must outlive this object. Not collective.
  TrainedNetwork(pmm::ProcessGrid const& grid, NetworkSettings const& model_settings,
                 std::shared_ptr<NetworkParameters<T>> parameters, NetworkOperands<T> operands,
                 pmm::RowLoss<T>& loss, TrainSettings const& settings,
                 std::shared_ptr<ParameterUpdate<T>> update)
      : network(grid, model_settings, std::move(parameters)),
        trainer(grid, network, loss, settings, std::move(update)) {
    network.rebind(std::move(operands));
  }
  GraphNetwork<T> network;
  Trainer<T> trainer;
};

} // namespace orthant::models
