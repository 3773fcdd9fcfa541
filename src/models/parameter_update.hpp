#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The end of a step, once the gradients are there: their norms, clipping, and the optimiser. Trainings that
// follow one another, such as mini-batches and then the full graph, share one, and so the optimiser's state.

#include "models/gcn.hpp"
#include "models/training_run.hpp"

#include <vector>

namespace orthant::models {

template<class T>
class ParameterUpdate {
 public:
  /// Of parameters whose values and gradients stay where they are. `grid` must outlive it.
  ParameterUpdate(pmm::ProcessGrid const& grid, std::vector<Parameter<T>> parameters,
                  TrainSettings const& settings);

  /// Updates the parameters by `factor` times their gradients, clipped. Returns the norms of those of the
  /// matrices, before clipping. Phases "norms" and "optimizer". Collective over the grid's group.
  std::vector<double> run(runtime::DefaultExec const& exec, double factor, runtime::PhaseTimes& phases);

 private:
  [[nodiscard]] std::vector<double> gradient_norms(runtime::DefaultExec const& exec) const;

  pmm::ProcessGrid const& grid_;
  std::vector<Parameter<T>> parameters_;
  std::optional<double> clip_norm_;
  Optimizer<T> optimizer_;
};

extern template class ParameterUpdate<float>;
extern template class ParameterUpdate<double>;

} // namespace orthant::models
