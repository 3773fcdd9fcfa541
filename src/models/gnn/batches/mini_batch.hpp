#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A GCN that trains on mini-batches, on a grid of Gd x X x Y x Z ranks (ScaleGNN, arXiv 2604.02651). Every
// group of X x Y x Z ranks trains on batches of its own; a step takes K batches of each of the Gd groups:
//
//   L = sum_{g,k} sum_{v in S_{g,k}, training} loss_v / n        n = training vertices of all Gd K batches
//   dW = sum_{g,k} dL/dW                                         all-reduced over the data axis
//
// n = 0 gives a zero gradient. The effective batch is Gd K B vertices, and an epoch has ceil(N / (Gd K B))
// updates: where Gd or K grows, fewer and less noisy steps want a larger learning rate (the square root of
// the growth for Adam, in proportion for SGD, as a start).
//
// Evaluation, and the last epochs where asked for, are full-graph passes with the same parameters, on the
// same ranks; every group then does the same, and group 0's weights are the result.

#include "models/gnn/batches/network_batches.hpp"
#include "models/gnn/network/trained_network.hpp"

#include <memory>

namespace orthant::models {

template<class T>
class MiniBatchNetwork {
 public:
  /// Reads blocks, features and targets, and draws the weights. Grid and store must outlive it. Collective
  /// over the grid's world. Throws UserError where the batches, the model or the store do not fit.
  MiniBatchNetwork(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                   NetworkSettings const& model_settings, TrainSettings const& settings,
                   MiniBatchSettings const& batch_settings);

  /// Trains all epochs from `start` on, or until `should_stop`; `on_epoch` is called after each, on every
  /// rank, with the same record: loss over all training vertices met, gradients' norms of the last step.
  /// Collective over the grid's world. Throws Error, naming epoch, step and layer, if a loss is not finite.
  TrainResult run(std::function<void(runtime::EpochRecord const&)> const& on_epoch,
                  TrainProgress const& start = {}, StopRequest const& should_stop = {});

  /// Loss and accuracy on the full graph. Collective over the grid's group. Error where it was set up for
  /// none: no evaluation and no full-graph epochs.
  [[nodiscard]] Scores evaluate();

  [[nodiscard]] std::vector<Parameter<T>>& parameters() { return parameters_->list(); }
  /// Of the optimiser's state.
  [[nodiscard]] ParameterUpdate<T>& update() { return *update_; }
  [[nodiscard]] std::int64_t num_parameters() const { return parameters_->num_numbers(); }
  [[nodiscard]] sampling::Sampler const& sampler() const { return *sampler_; }
  /// Neighbours that a vertex of a batch keeps, on average over the first batches of epoch 1. Samples them.
  /// Collective over the grid's group; before run().
  [[nodiscard]] double num_kept_neighbours();
  /// Losses of the steps of the last mini-batch epoch, or of those that this run made of it.
  [[nodiscard]] std::vector<double> const& step_losses() const { return trainer_->step_losses(); }

 private:
  pmm::ProcessGrid const& grid_;
  std::int64_t num_sampled_epochs_;
  std::unique_ptr<sampling::Sampler const> sampler_;
  TrainSettings settings_;
  NetworkPlan plan_;
  std::shared_ptr<NetworkParameters<T>> parameters_;
  pmm::RowLoss<T> full_loss_;
  pmm::RowLoss<T> batch_loss_; // in the same scratch
  GraphNetwork<T> network_;    // on batches
  std::shared_ptr<ParameterUpdate<T>> update_;
  std::unique_ptr<TrainedNetwork<T>> full_; // on the whole graph: for evaluation, and the last epochs
  std::unique_ptr<NetworkBatches<T>> batches_;
  std::unique_ptr<Trainer<T>> trainer_; // on batches
};

extern template class MiniBatchNetwork<float>;
extern template class MiniBatchNetwork<double>;

} // namespace orthant::models
