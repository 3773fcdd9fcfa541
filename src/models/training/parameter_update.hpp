#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The end of a step, once the gradients are there: their norms, clipping, and the optimiser. Trainings that
// follow one another, such as mini-batches and then the full graph, share one, and so the optimiser's state.
//
// Statistics among the parameters (running means of BatchNorm) have no norm, no moments and no gradient. With S the sum of what the
// B batches of a step over all data groups found, which is in the place of the gradient, and mu = 0.1 (layers/centered_norm.hpp):
//
//   value += mu (S / B - value)
//
//   update.run(exec, ..);                        // enqueues
//   auto const step = update.finish(exec);       // the one time in a step that the host waits

#include "models/parameters/parameter.hpp"
#include "models/training/training_run.hpp"
#include "pmm/cost/step_plan.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/device/kokkos_compat.hpp"

#include <span>
#include <string>
#include <vector>

namespace orthant::models {

// The single numbers of a training step: loss, gradients' norms, the factor of clipping, the learning rate.
// Kernels write them and kernels read them; the host gets them all in one copy at the end of the step.

/// Lists the array of StepNumbers.
void plan_step_numbers(pmm::StepPlan& step, std::int64_t num_norms);

class StepNumbers {
 public:
  explicit StepNumbers(std::size_t num_norms);

  /// [1] the loss of one pass.
  [[nodiscard]] runtime::Vector<double> loss() const { return part(0, 1); }
  /// [2] the same, and the number of rows that it is over.
  [[nodiscard]] runtime::Vector<double> loss_and_count() const { return part(0, 2); }
  /// [2] sums over the passes of a step if it has several: of losses, and of the rows that they are over.
  [[nodiscard]] runtime::Vector<double> sums() const { return part(2, 2); }
  /// What the gradients are multiplied by.
  [[nodiscard]] runtime::Number<double> scale() const { return runtime::number_at(numbers_, 4); }
  /// What the optimizer used in this step.
  [[nodiscard]] runtime::Number<double> learning_rate() const { return runtime::number_at(numbers_, 5); }
  /// [num_norms] squared norms of the gradients, and then norms.
  [[nodiscard]] runtime::Vector<double> norms() const { return part(first_norm, num_norms()); }
  [[nodiscard]] std::size_t num_norms() const { return numbers_.extent(0) - first_norm; }

  /// sums() := (k = 0, the first of a step) or += {loss * weight, count}, of loss_and_count(). Enqueues on
  /// exec.
  void add_to_sums(runtime::DefaultExec const& exec, std::int64_t k, double weight) const;

  /// norms() := factor times the roots of norms(); scale() := factor. The factor is 1 / gradient_scale; if
  /// nominal_count is positive, it is multiplied by nominal_count over the count of sums(), or by 0 if that
  /// count is 0. If clip_norm is positive and the norm of all gradients together is larger, scale() is also
  /// multiplied by clip_norm / (norm + 1e-6), as PyTorch's clip_grad_norm_ does. Enqueues on exec.
  void finish_norms(runtime::DefaultExec const& exec, double nominal_count, double gradient_scale,
                    double clip_norm) const;

  /// All numbers on the host.
  struct OnHost {
    double loss = 0;
    double sum = 0;
    double count = 0;
    double learning_rate = 0;
    std::span<double const> norms; // until the next read()
  };
  /// Waits for all that was enqueued on exec. One copy, one fence.
  [[nodiscard]] OnHost read(runtime::DefaultExec const& exec) const;

 private:
  static constexpr std::size_t first_norm = 6;
  friend void plan_step_numbers(pmm::StepPlan& step, std::int64_t num_norms);
  [[nodiscard]] runtime::Vector<double> part(std::size_t begin, std::size_t count) const {
    return runtime::Vector<double>(numbers_.data() + begin, count);
  }

  runtime::Vector<double> numbers_;
  Kokkos::View<double*, runtime::compat::PinnedSpace> on_host_; // unused if the host reaches numbers_
};

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
