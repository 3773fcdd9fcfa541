#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The one training loop: of any network, with any loss over its outputs, on any source of batches. With G data
// groups and K batches per group, a step is
//
//   L  = sum_{g,k} sum_{i in batch (g,k)} loss_i / n          n = rows of all G K batches that count
//   dW = sum_{g,k} dL/dW
//   W := the optimiser's update by dW
//
// The loss of an epoch is that of its forward passes, before their updates; evaluation is after the last one
// (docs/design.md, section 4). A full graph is one batch, and an epoch one step. Data groups, if there are
// any, then all do the same.
//
// On a device the first epoch of one batch runs plainly: kernels are chosen, libraries start, A^ F0 is kept.
// If the epochs after it are the same but for the numbers (no dropout, and no message passes through the
// host), the second is recorded, and it and all later ones are launched as a whole. What differs from epoch
// to epoch, the optimizer's step count, the learning rate and the factor of clipping, is in the device's memory.

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
  /// `batches` makes `network` and `loss` ready for each batch. `update`: the optimiser of another training
  /// with the same parameters, which takes turns with this one and knows the steps of both (with_num_steps);
  /// null: its own. All references must outlive
  /// the trainer.
  Trainer(pmm::ProcessGrid const& grid, Network<T>& network, pmm::RowLoss<T>& loss, BatchSource& batches,
          TrainSettings const& settings, std::shared_ptr<ParameterUpdate<T>> update = nullptr);
  /// On one batch: network and loss keep their operands and targets while it trains.
  Trainer(pmm::ProcessGrid const& grid, Network<T>& network, pmm::RowLoss<T>& loss,
          TrainSettings const& settings, std::shared_ptr<ParameterUpdate<T>> update = nullptr);
  /// The same with any objective.
  Trainer(pmm::ProcessGrid const& grid, Network<T>& network, Objective<T>& objective, BatchSource& batches,
          TrainSettings const& settings, std::shared_ptr<ParameterUpdate<T>> update = nullptr);
  Trainer(Trainer const&) = delete;
  Trainer& operator=(Trainer const&) = delete;

  /// Trains all epochs from `start` on, or until `should_stop`, and evaluates those that are due; `on_epoch`
  /// is called after each, on every rank, with the same record. Collective over the grid's world. Throws
  /// Error, naming epoch, step and layer, if a loss is not finite.
  TrainResult run(std::function<void(runtime::EpochRecord const&)> const& on_epoch,
                  TrainProgress const& start = {}, StopRequest const& should_stop = {});

  /// What more evaluations are to find in the logits, than the loss does. Collective over the grid's world.
  void judge_also_by(std::function<void(pmm::DistMatrix<T> const&, Scores&)> judge) {
    judge_ = std::move(judge);
  }
  /// Loss and accuracy of the network on what it is bound to, without dropout. Collective over the grid's
  /// group, or what is also found.
  [[nodiscard]] Scores evaluate();
  /// Of the last evaluation: Network::dead_layers(). Collective over the grid's world.
  [[nodiscard]] std::vector<std::int64_t> dead_layers();

  /// One epoch of run(), from the step where the progress is, which goes along. Loss of all its steps, norms
  /// of the gradients (one per matrix) and learning rate of the last, seconds and phases; none if it was told to stop before
  /// the last step. Collective over the grid's group and data axis.
  std::optional<runtime::EpochRecord> train_epoch(TrainProgress& progress, StopRequest const& should_stop);
  /// A whole epoch.
  runtime::EpochRecord train_epoch(std::int64_t epoch);

  /// Losses of the steps that train_epoch() made last.
  [[nodiscard]] std::vector<double> const& step_losses() const { return step_losses_; }

 private:
  /// `of_rows`: owned, if there is no other `objective`; without `batches` there is one.
  Trainer(pmm::ProcessGrid const& grid, Network<T>& network, std::unique_ptr<Objective<T>> of_rows,
          Objective<T>* objective, TrainSettings const& settings, std::shared_ptr<ParameterUpdate<T>> update,
          BatchSource* batches);

  typename ParameterUpdate<T>::Result train_step(std::int64_t epoch, std::int64_t step);
  /// Forward and backward passes of all batches of a step, and the update, on exec_. Waits for nothing,
  /// but for each loss if the network overwrites its outputs.
  void enqueue_step(std::int64_t epoch, runtime::PhaseTimes& phases);
  /// Returns what the gradients were multiplied by.
  double enqueue_batch(std::int64_t epoch, std::int64_t k, runtime::PhaseTimes& phases);
  void sum_over_groups(runtime::PhaseTimes& phases);
  [[nodiscard]] bool has_one_batch() const { return !nominal_count_; }
  [[nodiscard]] bool may_record() const;
  void record_step(std::int64_t epoch);
  void require_finite(typename ParameterUpdate<T>::Result const& result, std::int64_t epoch,
                      std::int64_t step) const;

  pmm::ProcessGrid const& grid_;
  Network<T>& network_;
  std::unique_ptr<Objective<T>> of_rows_; // null if the caller has an objective
  Objective<T>& objective_;
  OneBatch one_batch_;
  BatchSource& batches_;
  std::optional<std::int64_t> nominal_count_; // of the source
  TrainSettings settings_;
  std::shared_ptr<ParameterUpdate<T>> update_;
  std::function<void(pmm::DistMatrix<T> const&, Scores&)> judge_; // empty: nothing more
  std::optional<GradientSum<T>> gradient_sum_;                    // if there is more than one batch
  runtime::DeviceQueue const& queue_;                             // the default one cannot be recorded
  runtime::DefaultExec exec_;
  runtime::RecordedStep recorded_;
  std::optional<std::int64_t>
      first_not_finite_; // of this step's layers, found before outputs made room for gradients
  bool has_run_plainly_ = false;
  bool has_tried_to_record_ = false;
  runtime::PhaseTimes phases_;
  runtime::SteadyWork steady_work_; // of an emulation
  std::vector<double> step_losses_;
};

extern template class Trainer<float>;
extern template class Trainer<double>;

} // namespace orthant::models
