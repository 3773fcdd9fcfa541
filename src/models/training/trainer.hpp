#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The training loop, for any network, any loss of its outputs and any source of batches. With G data groups and K
// batches per group, a step is
//
//   L  = sum_{g,k} sum_{i in batch (g,k)} loss_i / n          n = number of counted rows in all G K batches
//   dW = sum_{g,k} dL/dW
//   W := W updated by the optimizer with dW
//
// The loss of an epoch is that of its forward passes, before their updates; evaluation follows the last update (docs/design.md,
// section 4). A full graph is one batch, and an epoch is one step; all data groups, if there are several, then do the same work.
//
// On a device the first epoch of a single batch runs without recording: kernels are chosen, libraries start, A^ F0 is kept. If all
// later epochs run the same operations on different numbers (no dropout, and no message passes through the host), the second one is
// recorded, and all of them are launched as a graph. The values that differ (step count of the optimizer, learning rate, factor of
// clipping) are in device memory.

#include "models/parameters/network.hpp"
#include "models/training/batch_source.hpp"
#include "models/training/gradient_sum.hpp"
#include "models/training/objective.hpp"
#include "models/training/parameter_update.hpp"
#include "runtime/comm/call_tape.hpp"
#include "runtime/observe/run_clock.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace orthant::models {

template<class T>
class Trainer {
 public:
  /// `batches` prepares `network` and `loss` for each batch. `update`: the optimizer of another training with the same parameters,
  /// which alternates with this one; its number of steps includes both (with_num_steps). null: the trainer makes its own. All
  /// references must outlive the trainer.
  Trainer(pmm::ProcessGrid const& grid, Network<T>& network, pmm::RowLoss<T>& loss, BatchSource& batches,
          TrainSettings const& settings, std::shared_ptr<ParameterUpdate<T>> update = nullptr);
  /// Trains on one batch. Network and loss must stay bound to it. States are not sharded over the batch axes.
  Trainer(pmm::ProcessGrid const& grid, Network<T>& network, pmm::RowLoss<T>& loss,
          TrainSettings const& settings, std::shared_ptr<ParameterUpdate<T>> update = nullptr);
  /// Trains on one batch with any objective.
  Trainer(pmm::ProcessGrid const& grid, Network<T>& network, Objective<T>& objective, BatchSource& batches,
          TrainSettings const& settings, std::shared_ptr<ParameterUpdate<T>> update = nullptr);
  Trainer(Trainer const&) = delete;
  Trainer& operator=(Trainer const&) = delete;

  /// Trains all epochs from `start` on, or until `should_stop` returns true, and evaluates as the settings say. `on_epoch` is
  /// called after each epoch on every rank, with the same record. Collective over the grid's world. Throws Error, which names
  /// epoch, step and layer, if a loss is not finite.
  TrainResult run(std::function<void(runtime::EpochRecord const&)> const& on_epoch,
                  TrainProgress const& start = {}, StopRequest const& should_stop = {});

  /// Makes evaluations also call `judge`, which computes more scores from the logits. `judge` is collective over the grid's world.
  void judge_also_by(std::function<void(pmm::DistMatrix<T> const&, Scores&)> judge) {
    judge_ = std::move(judge);
  }
  /// Loss and accuracy of the network on the bound batch or graph, without dropout. Collective over the grid's group, and
  /// over the axes of `judge`.
  [[nodiscard]] Scores evaluate();
  /// Network::dead_layers() in the last evaluation. Collective over the grid's world.
  [[nodiscard]] std::vector<std::int64_t> dead_layers();

  /// Trains the rest of an epoch, from the step in `progress`, which is updated. Returns a record with the loss of all steps of the
  /// epoch, norms of the gradients (one per matrix) and learning rate of the last step, seconds and phases; nullopt if
  /// `should_stop` ended it before the last step. Collective over the grid's group and data axis.
  std::optional<runtime::EpochRecord> train_epoch(TrainProgress& progress, StopRequest const& should_stop);
  /// Trains a whole epoch.
  runtime::EpochRecord train_epoch(std::int64_t epoch);

  [[nodiscard]] std::shared_ptr<ParameterUpdate<T>> const& update() const { return update_; }
  /// Losses of the steps of the last train_epoch().
  [[nodiscard]] std::vector<double> const& step_losses() const { return step_losses_; }

 private:
  /// `of_rows`: owned objective, used if `objective` is null. Without `batches` one_batch_ is used.
  Trainer(pmm::ProcessGrid const& grid, Network<T>& network, std::unique_ptr<Objective<T>> of_rows,
          Objective<T>* objective, TrainSettings const& settings, std::shared_ptr<ParameterUpdate<T>> update,
          BatchSource* batches);

  typename ParameterUpdate<T>::Result train_step(std::int64_t epoch, std::int64_t step);
  /// Enqueues the forward and backward passes of all batches of a step, and the update, on exec_. Does not wait, except for each
  /// loss if the network overwrites its outputs.
  void enqueue_step(std::int64_t epoch, runtime::PhaseTimes& phases);
  /// Forward pass and loss of batch k. Returns the factor by which gradients were multiplied.
  double enqueue_forward(std::int64_t epoch, std::int64_t k, runtime::PhaseTimes& phases);
  /// Backward pass of batch k, and the sum of its gradients.
  void enqueue_backward(std::int64_t k, runtime::PhaseTimes& phases);
  void sum_over_groups(runtime::PhaseTimes& phases);
  void make_gradient_sum();
  /// Before each step: prunes the weights if they are due, and makes the sum of the gradients that are kept.
  void prepare_pruned();
  [[nodiscard]] bool has_one_batch() const { return !nominal_count_; }
  [[nodiscard]] bool may_record() const;
  void record_step(std::int64_t epoch);
  void require_finite(typename ParameterUpdate<T>::Result const& result, std::int64_t epoch,
                      std::int64_t step) const;

  pmm::ProcessGrid const& grid_;
  Network<T>& network_;
  std::unique_ptr<Objective<T>> of_rows_; // null if the caller owns the objective
  Objective<T>& objective_;
  OneBatch one_batch_;
  BatchSource& batches_;
  std::optional<std::int64_t> nominal_count_; // nominal_count() of the source
  std::vector<PassAction> order_;             // of the passes of a step
  TrainSettings settings_;
  std::shared_ptr<ParameterUpdate<T>> update_;
  std::function<void(pmm::DistMatrix<T> const&, Scores&)> judge_; // empty: no additional scores
  std::optional<GradientSum<T>> gradient_sum_;                    // if a step has more than one batch
  runtime::DeviceQueue const& queue_; // a queue that can be recorded, unlike the default one
  runtime::DefaultExec exec_;
  runtime::RecordedStep recorded_;
  std::optional<std::int64_t> first_not_finite_; // first layer of this step with an output that is not finite
  bool has_run_plainly_ = false;
  bool has_tried_to_record_ = false;
  runtime::PhaseTimes phases_;
  runtime::SteadyWork steady_work_; // in emulated runs
  std::vector<double> step_losses_;
};

extern template class Trainer<float>;
extern template class Trainer<double>;

} // namespace orthant::models
