#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Full-graph training: every epoch one forward and backward pass over all vertices and one update. The loss
// of an epoch is that of its forward pass, before its update; evaluation is after the update
// (docs/design.md, section 4).
//
// On a device the first epoch runs plainly: kernels are chosen, libraries start, A^ F0 is kept. Where the
// epochs after it are the same but for the numbers (no dropout, and no message passes through the host), the
// second is recorded, and it and all later ones are launched as a whole. What differs from epoch to epoch,
// the optimiser's step count and the factor of clipping, is in the device's memory.

#include "models/core/network.hpp"
#include "models/training/gradient_scale.hpp"
#include "models/training/parameter_update.hpp"
#include "runtime/comm/recorded_step.hpp"

#include <functional>
#include <memory>

namespace orthant::models {

template<class T>
class FullGraphTrainer {
 public:
  /// `update`: the optimiser of a training before this one; null: its own. Model and loss keep their operands
  /// and targets while it trains.
  FullGraphTrainer(pmm::ProcessGrid const& grid, Network<T>& model, pmm::RowLoss<T>& loss,
                   TrainSettings const& settings, std::shared_ptr<ParameterUpdate<T>> update = nullptr);

  /// Trains all epochs from `start` on, or until `should_stop`; `on_epoch` is called after each, on every
  /// rank, with the same record. Collective over the grid's world. Throws Error, naming epoch and layer, if
  /// the loss is not finite.
  TrainResult run(std::function<void(runtime::EpochRecord const&)> const& on_epoch,
                  TrainProgress const& start = {}, StopRequest const& should_stop = {});

  /// Loss and accuracy of the model as it is, without dropout. Collective.
  [[nodiscard]] Scores evaluate();

  /// One epoch of run(): loss, norms of the gradients (one per matrix), update. Collective over the grid's
  /// group.
  runtime::EpochRecord train_epoch(std::int64_t epoch);

 private:
  /// Forward and backward pass and update, on exec_. Waits for nothing.
  void enqueue_step(std::int64_t epoch, runtime::PhaseTimes& phases);
  [[nodiscard]] bool may_record() const;
  void record_step(std::int64_t epoch);

  pmm::ProcessGrid const& grid_;
  Network<T>& model_;
  pmm::RowLoss<T>& loss_;
  TrainSettings settings_;
  std::shared_ptr<ParameterUpdate<T>> update_;
  runtime::DeviceQueue const& queue_; // the default one cannot be recorded
  runtime::DefaultExec exec_;
  runtime::RecordedStep recorded_;
  bool has_run_plainly_ = false;
  bool has_tried_to_record_ = false;
  runtime::PhaseTimes phases_;
};

extern template class FullGraphTrainer<float>;
extern template class FullGraphTrainer<double>;

} // namespace orthant::models
