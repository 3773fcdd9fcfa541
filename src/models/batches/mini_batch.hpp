#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Mini-batch training on a grid of Gd x X x Y x Z ranks (ScaleGNN, arXiv 2604.02651). Every group of X x Y x
// Z ranks trains on a batch of its own; a step takes K batches of each of the Gd groups:
//
//   L = sum_{g,k} sum_{v in S_{g,k}, training} loss_v / n        n = training vertices of all Gd K batches
//   dW = sum_{g,k} dL/dW                                         all-reduced over the data axis
//
// n = 0 gives a zero gradient. The effective batch is Gd K B vertices, and an epoch has ceil(N / (Gd K B))
// updates: where Gd or K grows, fewer and less noisy steps want a larger learning rate (the square root of
// the growth for Adam, in proportion for SGD, as a start).
//
// Dropout is keyed by epoch and batch index, so Gd groups train as one that accumulates Gd batches.
// Evaluation, and the last epochs where asked for, are full-graph passes with the same parameters, on the
// same ranks; every group then does the same, and group 0's weights are the result.

#include "models/batches/batch_queue.hpp"
#include "models/gnn/gcn.hpp"
#include "models/training/full_graph.hpp"
#include "models/training/gradient_scale.hpp"
#include "models/training/gradient_sum.hpp"

#include <memory>
#include <optional>

namespace orthant::models {

struct MiniBatchSettings {
  std::int64_t batch_size = 1024;       // B, of a group
  std::int64_t num_accumulated = 1;     // K
  std::optional<double> train_fraction; // of training vertices in a batch; none: as chance has it
  std::int64_t num_full_epochs = 0;     // the last ones, on the full graph
  Prefetch prefetch = Prefetch::next_batch;
};

template<class T>
class MiniBatchTrainer {
 public:
  /// Reads blocks, features and targets, and draws the weights. Grid and store must outlive it. Collective
  /// over the grid's world. Throws UserError where the batches, the model or the store do not fit.
  MiniBatchTrainer(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                   GcnSettings const& model_settings, TrainSettings const& settings,
                   MiniBatchSettings const& batch_settings);

  /// Trains all epochs from `start` on, or until `should_stop`; `on_epoch` is called after each, on every
  /// rank, with the same record: loss over all training vertices met, gradients' norms of the last step. Once.
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
  [[nodiscard]] sampling::VertexSampler const& sampler() const { return sampler_; }
  /// Losses of the steps of the last mini-batch epoch, or of those that this run made of it.
  [[nodiscard]] std::vector<double> const& step_losses() const { return step_losses_; }

 private:
  /// The whole graph: for evaluation, and the last epochs.
  struct FullGraph {
    FullGraph(pmm::ProcessGrid const& grid, GcnSettings const& model_settings,
              std::shared_ptr<GcnParameters<T>> parameters, GcnOperands<T> operands, pmm::RowLoss<T>& loss,
              TrainSettings const& settings, std::shared_ptr<ParameterUpdate<T>> update)
        : network(grid, model_settings, std::move(parameters)),
          trainer(grid, network, loss, settings, std::move(update)) {
      network.rebind(std::move(operands));
    }
    Gcn<T> network;
    FullGraphTrainer<T> trainer;
  };

  std::optional<runtime::EpochRecord> train_epoch(TrainProgress& progress, StopRequest const& should_stop);
  /// Gradients of the K batches of this group and of all groups, and the update. Its sums: of the loss over
  /// the training vertices, and the number of them.
  typename ParameterUpdate<T>::Result train_step(std::int64_t epoch, std::int64_t step);
  void add_batch(std::int64_t epoch, std::int64_t k);
  [[nodiscard]] double gradient_scale() const {
    return models::gradient_scale(network_.wire(), batch_loss_, nominal_count_);
  }

  pmm::ProcessGrid const& grid_;
  TrainSettings settings_;
  MiniBatchSettings batch_settings_;
  sampling::VertexSampler sampler_;
  GcnPlan plan_;
  std::shared_ptr<GcnParameters<T>> parameters_;
  pmm::RowLoss<T> full_loss_;
  pmm::RowLoss<T> batch_loss_; // in the same scratch
  std::int64_t
      nominal_count_; // of training vertices in a step: what gradients are divided by until n is known
  std::unique_ptr<BatchSource<T>> source_;
  Gcn<T> network_; // on batches
  GradientSum<T> gradient_sum_;
  std::shared_ptr<ParameterUpdate<T>> update_;
  std::unique_ptr<FullGraph> full_;
  std::unique_ptr<BatchQueue<T>> queue_;
  runtime::DefaultExec exec_;
  runtime::PhaseTimes phases_;
  std::vector<double> step_losses_;
};

extern template class MiniBatchTrainer<float>;
extern template class MiniBatchTrainer<double>;

} // namespace orthant::models
