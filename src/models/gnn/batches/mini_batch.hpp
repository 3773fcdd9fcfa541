#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Training of a graph network on mini-batches, on a grid of Gd x X x Y x Z ranks (ScaleGNN, arXiv 2604.02651). Each group of X x Y
// x Z ranks trains on its own batches; a step takes K batches from each of the Gd groups:
//
//   L = sum_{g,k} sum_{v in S_{g,k}, training} loss_v / n        n = training vertices of all Gd K batches
//   dW = sum_{g,k} dL/dW                                         all-reduced over the data axis
//
// If n = 0, the gradient is zero. The effective batch has Gd K B vertices, and an epoch has ceil(N / (Gd K B)) updates. If Gd or K
// grows, there are fewer steps with less noise, which call for a larger learning rate (as a start, by the square root of the growth
// for Adam, in proportion for SGD).
//
// Evaluations, and the last epochs if requested, are full-graph passes with the same parameters on the same ranks. All groups then
// do the same work, and the weights of group 0 are the result.

#include "models/gnn/batches/network_batches.hpp"
#include "models/gnn/network/graph_network.hpp"

#include <memory>

namespace orthant::models {

template<class T>
class MiniBatchNetwork {
 public:
  /// Reads blocks, features and targets, and draws the weights. Grid and store must outlive this object. Collective over the grid's
  /// world. Throws UserError if batches, model or store do not fit together.
  MiniBatchNetwork(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                   NetworkSettings const& model_settings, TrainSettings const& settings,
                   MiniBatchSettings const& batch_settings);

  /// Trains all epochs from `start` on, or until `should_stop` returns true. `on_epoch` is called after each epoch on every rank,
  /// with the same record: the loss over all training vertices in its batches, and norms of the gradients of the last step.
  /// Collective over the grid's world. Throws Error, which names epoch, step and layer, if a loss is not finite.
  TrainResult run(std::function<void(runtime::EpochRecord const&)> const& on_epoch,
                  TrainProgress const& start = {}, StopRequest const& should_stop = {});

  /// Loss and accuracy on the full graph. Collective over the grid's group. The settings must include evaluations or full-graph
  /// epochs; otherwise throws Error.
  [[nodiscard]] Scores evaluate();

  [[nodiscard]] std::vector<Parameter<T>>& parameters() { return parameters_->list(); }
  /// The update, with the optimizer's state.
  [[nodiscard]] ParameterUpdate<T>& update() { return *update_; }
  [[nodiscard]] std::int64_t num_parameters() const { return parameters_->num_numbers(); }
  [[nodiscard]] sampling::Sampler const& sampler() const { return *sampler_; }
  /// Mean number of neighbors that a vertex of a batch keeps, over the first batches of epoch 1, which are sampled for it. Call
  /// before run(). Collective over the grid's group.
  [[nodiscard]] double num_kept_neighbours();
  /// Whether kernels make the batches.
  [[nodiscard]] bool samples_by_kernels() const { return batches_->uses_kernels(); }
  /// Losses of the steps of the last mini-batch epoch; only the steps of this run if it was resumed.
  [[nodiscard]] std::vector<double> const& step_losses() const { return trainer_->step_losses(); }

 private:
  pmm::ProcessGrid const& grid_;
  std::int64_t num_sampled_epochs_;
  std::unique_ptr<sampling::Sampler const> sampler_;
  TrainSettings settings_;
  NetworkPlan plan_;
  std::shared_ptr<NetworkParameters<T>> parameters_;
  pmm::RowLoss<T> full_loss_;
  pmm::RowLoss<T> batch_loss_; // shares the scratch of full_loss_
  GraphNetwork<T> network_;    // on batches
  std::shared_ptr<ParameterUpdate<T>> update_;
  std::unique_ptr<TrainedNetwork<T>> full_; // on the whole graph, for evaluation and the last epochs
  std::unique_ptr<NetworkBatches<T>> batches_;
  std::unique_ptr<Trainer<T>> trainer_; // on batches
};

extern template class MiniBatchNetwork<float>;
extern template class MiniBatchNetwork<double>;

} // namespace orthant::models
