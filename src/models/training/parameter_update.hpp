#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The end of a step, once the gradients are there: their norms, clipping, and the optimiser. Trainings that
// follow one another, such as mini-batches and then the full graph, share one, and so the optimiser's state.
//
// Statistics among the parameters (running means of BatchNorm) have no norm, no moments and no gradient. With S the sum of what the
// B batches of a step over all data groups found, which is in the place of the gradient, and mu = 0.1 (norms/norm_kind.hpp):
//
//   value += mu (S / B - value)
//
//   update.run(exec, ..);                        // enqueues
//   auto const step = update.finish(exec);       // the one time in a step that the host waits

#include "models/core/parameter.hpp"
#include "models/training/step_numbers.hpp"
#include "models/training/training_run.hpp"

#include <string>
#include <vector>

namespace orthant::models {

/// Lists the arrays of a ParameterUpdate, for parameters of which this rank has that many numbers each; and the
/// passes and the collective of its run(). Both are of the parameters that are trained; `statistics`: of the others.
/// `normed_lengths`: the numbers whose squares this rank adds up.
void plan_update_arrays(pmm::StepPlan& step, OptimizerSettings const& optimizer,
                        std::vector<std::int64_t> const& lengths);
void plan_update(pmm::StepPlan& step, OptimizerSettings const& optimizer,
                 std::vector<std::int64_t> const& lengths, std::vector<std::int64_t> const& normed_lengths,
                 std::vector<std::int64_t> const& statistics = {});

/// An array of the optimiser's state and the parameter that it belongs to, whose placement it has. A copy
/// shares the numbers.
template<class T>
struct StateArray {
  Parameter<T> parameter;
  OptimizerArray<T> array;
};

template<class T>
class ParameterUpdate {
 public:
  /// For parameters and statistics whose values and gradients stay where they are. `grid` must outlive it.
  ParameterUpdate(pmm::ProcessGrid const& grid, std::vector<Parameter<T>> const& parameters,
                  TrainSettings const& settings);

  /// Where the step's loss goes, and the count of what it is of.
  [[nodiscard]] StepNumbers const& numbers() const { return numbers_; }

  /// Updates the parameters by their gradients, clipped, and the statistics by those of `num_batches`. If `nominal_count` is given, the gradients were
  /// divided by it instead of by the count of numbers().sums(). They were multiplied by `gradient_scale`. The
  /// update makes up for both. Phases "norms" and "optimizer". Enqueues on exec; does not fence. Collective
  /// over the grid's group.
  void run(runtime::DefaultExec const& exec, std::optional<std::int64_t> nominal_count,
           runtime::PhaseTimes& phases, double gradient_scale = 1, std::int64_t num_batches = 1);

  /// What the host is told of a step.
  struct Result {
    double loss = 0; // of the last pass
    double sum = 0;  // of numbers().sums()
    double count = 0;
    double learning_rate = 0;
    std::vector<double> norms; // of the matrices' gradients, before clipping
    double norm = 0;           // of all gradients together
    std::string diverged;      // the first parameter whose gradient is not finite; empty: none
  };
  /// Fences exec, and brings the numbers of run() and of before it to the host.
  [[nodiscard]] Result finish(runtime::DefaultExec const& exec);

  /// Throws Error, naming the parameter, if one has grown so large that the square of its norm is not
  /// finite in T: products of such numbers are not. After the last step, before anybody takes the parameters
  /// for a result. Fences exec. Collective over the grid's group.
  void require_bounded_parameters(runtime::DefaultExec const& exec) const;

  /// The optimiser's state, readable and settable: its arrays for all parameters, in their order, and the
  /// number of steps so far. Between steps; num_steps() waits for all kernels.
  [[nodiscard]] std::vector<StateArray<T>> state() const;
  [[nodiscard]] std::int64_t num_steps() const { return optimizer_.num_steps(); }
  void set_num_steps(std::int64_t num_steps) { optimizer_.set_num_steps(num_steps); }
  /// Of step `t`, from 1. Between steps; waits for all kernels.
  [[nodiscard]] double learning_rate(std::int64_t t) const { return optimizer_.learning_rate(t); }
  void set_rate_reduction(double reduction) { optimizer_.set_rate_reduction(reduction); }

 private:
  pmm::ProcessGrid const& grid_;
  std::vector<Parameter<T>> parameters_; // that are trained
  std::vector<Parameter<T>> statistics_;
  std::optional<double> clip_norm_;
  Optimizer<T> optimizer_;
  StepNumbers numbers_;
};

extern template class ParameterUpdate<float>;
extern template class ParameterUpdate<double>;

} // namespace orthant::models
