#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Full-graph training: every epoch one forward and backward pass over all vertices and one update. The loss
// of an epoch is that of its forward pass, before its update; evaluation is after the update (DESIGN section
// 4).

#include "models/parameter_update.hpp"

#include <functional>
#include <memory>

namespace orthant::models {

template<class T>
class FullGraphTrainer {
 public:
  /// `update`: the optimiser of a training before this one; null: its own.
  FullGraphTrainer(pmm::ProcessGrid const& grid, Gcn<T>& model, pmm::RowLoss<T>& loss,
                   TrainSettings const& settings, std::shared_ptr<ParameterUpdate<T>> update = nullptr);

  /// Trains all epochs; `on_epoch` is called after each, on every rank, with the same record. Collective over
  /// the grid's world. Throws Error, naming epoch and layer, where the loss is not finite.
  TrainResult run(std::function<void(runtime::EpochRecord const&)> const& on_epoch);

  /// Loss and accuracy of the model as it is, without dropout. Collective.
  [[nodiscard]] Scores evaluate();

  /// One epoch of run(): loss, gradients' norms (one a layer), update. Collective over the grid's group.
  runtime::EpochRecord train_epoch(std::int64_t epoch);

 private:
  pmm::ProcessGrid const& grid_;
  Gcn<T>& model_;
  pmm::RowLoss<T>& loss_;
  TrainSettings settings_;
  std::shared_ptr<ParameterUpdate<T>> update_;
  runtime::DefaultExec exec_;
  runtime::PhaseTimes phases_;
};

extern template class FullGraphTrainer<float>;
extern template class FullGraphTrainer<double>;

} // namespace orthant::models
