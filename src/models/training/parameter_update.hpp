#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The end of a step, after the gradients are complete: norms, clipping and the optimizer. Trainings that follow one another, such
// as mini-batches and then the full graph, share one ParameterUpdate, and so the optimizer's state.
//
// Statistics among the parameters (running means of BatchNorm) have no norms, moments or gradients. Their gradient arrays hold S,
// the sum of the statistics of a step's B batches over all data groups. With mu = 0.1 (layers/hidden_norm.hpp):
//
//   value += mu (S / B - value)
//
//   update.run(exec, ..);                        // enqueues
//   auto const step = update.finish(exec);       // the only point in a step at which the host waits

#include "models/parameters/parameter.hpp"
#include "models/training/gradient_shards.hpp"
#include "models/training/training_run.hpp"
#include "pmm/cost/step_plan.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/device/kokkos_compat.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace orthant::models {

// Scalars of a training step: loss, norms of the gradients, factor of clipping, learning rate. Kernels write and read them; the
// host gets all of them in one copy at the end of the step.

/// Lists the array of StepNumbers.
void plan_step_numbers(pmm::StepPlan& step, std::int64_t num_norms);

class StepNumbers {
 public:
  explicit StepNumbers(std::size_t num_norms);

  /// [1] the loss of one pass.
  [[nodiscard]] runtime::Vector<double> loss() const { return part(0, 1); }
  /// [2] the loss, and the number of its rows.
  [[nodiscard]] runtime::Vector<double> loss_and_count() const { return part(0, 2); }
  /// [2] sums over the passes of a step, if it has several: of the losses, and of the numbers of their rows.
  [[nodiscard]] runtime::Vector<double> sums() const { return part(2, 2); }
  /// Factor of the gradients.
  [[nodiscard]] runtime::Number<double> scale() const { return runtime::number_at(numbers_, 4); }
  /// Learning rate of the optimizer in this step.
  [[nodiscard]] runtime::Number<double> learning_rate() const { return runtime::number_at(numbers_, 5); }
  /// [num_norms] squared norms of the gradients; after finish_norms(), the norms.
  [[nodiscard]] runtime::Vector<double> norms() const { return part(first_norm, num_norms()); }
  [[nodiscard]] std::size_t num_norms() const { return numbers_.extent(0) - first_norm; }

  /// Adds {loss * weight, count}, from loss_and_count(), to sums(). Overwrites sums() if k = 0, the first pass of a step. Enqueues on exec.
  void add_to_sums(runtime::DefaultExec const& exec, std::int64_t k, double weight) const;

  /// norms() := factor times the square roots of norms(); scale() := factor. The factor is 1 / gradient_scale. If nominal_count is
  /// positive, it is also multiplied by nominal_count over the count of sums(), or by 0 if this count is 0. If clip_norm is
  /// positive and the norm of all gradients together is larger, scale() is also multiplied by clip_norm / (norm + 1e-6), as in
  /// PyTorch's clip_grad_norm_. Enqueues on exec.
  void finish_norms(runtime::DefaultExec const& exec, double nominal_count, double gradient_scale,
                    double clip_norm) const;

  /// Copy of all scalars on the host.
  struct OnHost {
    double loss = 0;
    double sum = 0;
    double count = 0;
    double learning_rate = 0;
    std::span<double const> norms; // valid until the next read()
  };
  /// Waits for all work enqueued on exec. One copy, one fence.
  [[nodiscard]] OnHost read(runtime::DefaultExec const& exec) const;

 private:
  static constexpr std::size_t first_norm = 6;
  friend void plan_step_numbers(pmm::StepPlan& step, std::int64_t num_norms);
  [[nodiscard]] runtime::Vector<double> part(std::size_t begin, std::size_t count) const {
    return runtime::Vector<double>(numbers_.data() + begin, count);
  }

  runtime::Vector<double> numbers_;
  Kokkos::View<double*, runtime::compat::PinnedSpace> on_host_; // unused if the host can access numbers_
};

/// List the arrays of a ParameterUpdate, and the passes and the collectives of run(). `normed_lengths`: elements of each trained
/// parameter in this rank's part of its norm. `statistics`: number of elements of each statistic. `others`: the batch axes if states are
/// sharded over them.
void plan_update_arrays(pmm::StepPlan& step, OptimizerSettings const& optimizer,
                        UpdatedParameters const& parameters);
void plan_update(pmm::StepPlan& step, OptimizerSettings const& optimizer, UpdatedParameters const& parameters,
                 std::vector<std::int64_t> const& normed_lengths,
                 std::vector<std::int64_t> const& statistics = {}, pmm::AxisSet others = {});

/// An array of the optimizer's state, with the parameter to which it belongs and whose placement it has. Copies share memory.
template<class T>
struct StateArray {
  Parameter<T> parameter;
  OptimizerArray<T> array;
};

template<class T>
class ParameterUpdate {
 public:
  /// The memory of the parameters' values and gradients must not move. `grid` must outlive this object. `shards`: of the same parameters,
  /// if the states are sharded over the batch axes; run() then updates the parts that this rank owns, and gathers the others. With jorge
  /// there must be none (otherwise throws Error), and the constructor is collective over the grid's group.
  ParameterUpdate(pmm::ProcessGrid const& grid, std::vector<Parameter<T>> const& parameters,
                  TrainSettings const& settings, std::shared_ptr<GradientShards<T>> shards = nullptr);

  /// The step's scalars: the loss and its count are written here.
  [[nodiscard]] StepNumbers const& numbers() const { return numbers_; }
  /// Null if no states are sharded over the batch axes.
  [[nodiscard]] std::shared_ptr<GradientShards<T>> const& shards() const { return shards_; }
  /// Null if no weights are pruned.
  [[nodiscard]] PrunedWeights<T> const* pruned() const { return pruned_ ? &*pruned_ : nullptr; }
  /// Prunes the weights by magnitude. The next run() must follow read_gradients_of(). Collective over the grid's world. Fences.
  void prune(runtime::DefaultExec const& exec);
  /// Keeps those entries of the parameter with this name for which is_kept is true. It must be one that is pruned. Fences.
  void keep(std::string const& name, std::vector<bool> const& is_kept);
  /// Reads the gradients of pruned weights from the array of `sums` from here on.
  void read_gradients_of(GradientSum<T> const& sums);

  /// Updates the parameters by their clipped gradients, and the statistics by those of `num_batches` batches. The gradients have been
  /// multiplied by `gradient_scale`, and divided by `nominal_count`, if given, instead of the count of numbers().sums(); the update
  /// compensates for both. Phases "norms" and "optimizer", and "data" if values are gathered. Enqueues on exec; does not fence.
  /// Collective over the grid's group, and over the batch axes if states are sharded over them.
  void run(runtime::DefaultExec const& exec, std::optional<std::int64_t> nominal_count,
           runtime::PhaseTimes& phases, double gradient_scale = 1, std::int64_t num_batches = 1);

  /// Results of a step on the host.
  struct Result {
    double loss = 0; // of the last pass
    double sum = 0;  // of numbers().sums()
    double count = 0;
    double learning_rate = 0;
    std::vector<double> norms; // of the gradients of matrices, before clipping
    double norm = 0;           // of all gradients together
    std::string diverged;      // name of the first parameter whose gradient is not finite; empty if none
  };
  /// Fences exec, and copies the scalars of run() and of the passes before it to the host.
  [[nodiscard]] Result finish(runtime::DefaultExec const& exec);

  /// Checks that the squared norm of each parameter is finite in T; otherwise products with the parameter overflow. Throws Error with
  /// the name of the parameter if it is not. Call it after the last step, before the parameters are used as a result. Fences exec.
  /// Collective over the grid's group.
  void require_bounded_parameters(runtime::DefaultExec const& exec) const;

  /// The optimizer's state, which may be read and written: its arrays for all parameters, in their order, and the number of steps
  /// so far. Call between steps only; num_steps() fences all kernels.
  [[nodiscard]] std::vector<StateArray<T>> state() const;
  /// Whether every step enqueues the same kernels. Jorge's k-th steps have more.
  [[nodiscard]] bool repeats_itself() const { return !jorge_; }
  [[nodiscard]] std::int64_t num_steps() const { return optimizer_.num_steps(); }
  void set_num_steps(std::int64_t num_steps) {
    optimizer_.set_num_steps(num_steps);
    if (jorge_) jorge_->set_num_steps(num_steps);
  }
  /// Learning rate of step `t`, counted from 1. Call between steps only; fences all kernels.
  [[nodiscard]] double learning_rate(std::int64_t t) const { return optimizer_.learning_rate(t); }
  void set_rate_reduction(double reduction) { optimizer_.set_rate_reduction(reduction); }

 private:
  pmm::ProcessGrid const& grid_;
  /// Whether this rank's copy of the parameter is the one that counts in norms over the batch axes.
  [[nodiscard]] bool counts_in_norms(Parameter<T> const& parameter) const;

  [[nodiscard]] bool is_pruned(std::size_t p) const { return pruned_ && pruned_->has(places_[p]); }

  std::vector<Parameter<T>> parameters_; // trained ones
  std::vector<std::size_t> places_;      // of these among all parameters
  std::shared_ptr<GradientShards<T>> shards_;
  std::vector<Parameter<T>> updated_; // what this rank updates of each of them
  std::vector<Parameter<T>> statistics_;
  std::optional<double> clip_norm_;
  std::optional<PrunedWeights<T>> pruned_;    // of all parameters
  std::vector<runtime::Vector<T>> gradients_; // of updated_, if weights are pruned: what the optimizer reads
  std::optional<Jorge<T>> jorge_;             // of matrices
  Optimizer<T> optimizer_;
  StepNumbers numbers_;
};

extern template class ParameterUpdate<float>;
extern template class ParameterUpdate<double>;

} // namespace orthant::models
