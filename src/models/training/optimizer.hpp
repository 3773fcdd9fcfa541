#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Optimisers on shards: each rank updates the piece of every parameter that it owns, with moments of the same
// shape, so nothing is communicated. With g the gradient (times the clip scale), w the value, t = 1, 2, ..:
//
//   sgd     g += wd w;  m = mu m + g;  w -= lr m
//   adam    g += wd w;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//           w -= lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
//   adamw   w -= lr wd w, then adam with wd = 0
//
// lr is that of step t (learning_rate.hpp). t, lr and the scale are in the memory of the kernels: a step reads
// and writes nothing of the host's, and may be replayed. The values, m, v and t are all that a training needs
// to go on elsewhere. Sources: Kingma & Ba (arXiv 1412.6980), Loshchilov & Hutter (arXiv 1711.05101).

#include "models/training/learning_rate.hpp"
#include "pmm/cost/step_plan.hpp"
#include "runtime/arrays/views.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::models {

enum class OptimizerKind : std::uint8_t { adam, adamw, sgd };

/// "adam", "adamw" or "sgd". Throws UserError for another word.
[[nodiscard]] OptimizerKind parse_optimizer(std::string_view word);

struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::adam;
  double learning_rate = 0.01; // the largest
  RateSchedule schedule;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double momentum = 0.9; // sgd only
};

/// The piece of one parameter that this rank owns, its gradient, and its group's weight decay.
template<class T>
struct ParameterShard {
  runtime::Vector<T> value;
  runtime::Vector<T> gradient;
  double weight_decay = 0;
};

/// Lists the arrays of an Optimizer, for parameters of which this rank has that many numbers each.
void plan_optimizer_arrays(pmm::StepPlan& step, OptimizerSettings const& settings,
                           std::vector<std::int64_t> const& lengths);

/// Lists the pass of Optimizer::step, for the same.
void plan_optimizer_step(pmm::StepPlan& step, OptimizerSettings const& settings,
                         std::vector<std::int64_t> const& lengths);

/// An array that the optimiser keeps for a parameter: m and v, by the names that PyTorch gives them. It has
/// as many numbers as the parameter's piece on this rank, in the same order. A copy shares the numbers.
template<class T>
struct OptimizerArray {
  std::string name; // "exp_avg", "exp_avg_sq"; sgd: "momentum_buffer"
  runtime::Vector<T> numbers;
};

namespace detail {
/// What the update of one parameter reads and writes, for kernels.
template<class T>
struct ShardPointers {
  std::int64_t end = 0; // of its numbers, counted over all parameters
  T* value = nullptr;
  T const* gradient = nullptr;
  T* first = nullptr; // moments; null if there are none
  T* second = nullptr;
  T coupled_decay = 0;        // added to the gradient
  double decoupled_decay = 0; // 1 - lr times it multiplies the value
};

/// What the update of all parameters has in common, and what differs from step to step.
template<class T>
struct StepFactors {
  T gradient_scale = 1;
  T step_size = 0;           // lr / (1 - b1^t); sgd: lr
  T inverse_correction2 = 0; // 1 / (1 - b2^t)
};
} // namespace detail

template<class T>
class Optimizer {
 public:
  /// Moments are allocated here, zero; none for sgd without momentum. Error if the rate decays over a number of
  /// steps that is not known.
  Optimizer(OptimizerSettings const& settings, std::vector<ParameterShard<T>> const& parameters);

  /// One update of every parameter. `gradient_scale`, which kernels read, multiplies the gradients first
  /// (clipping); the learning rate of this step goes to `learning_rate`. Two kernels (on the host: one per
  /// parameter), one pass. Enqueues on exec; does not fence.
  void step(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
            runtime::Number<double> const& gradient_scale, runtime::Number<double> const& learning_rate);

  /// The arrays of parameter `p`: none for sgd without momentum. Writing to them sets the state.
  [[nodiscard]] std::vector<OptimizerArray<T>> arrays(std::size_t p) const;
  /// t, the number of steps so far. Waits for all kernels.
  [[nodiscard]] std::int64_t num_steps() const;
  void set_num_steps(std::int64_t num_steps);
  /// The learning rate of step `t`, from 1, after the plateaus so far. Waits for all kernels.
  [[nodiscard]] double learning_rate(std::int64_t t) const;
  /// What plateaus have left of the learning rate, from the next step on (learning_rate.hpp).
  void set_rate_reduction(double reduction);

 private:
  struct Moments {
    runtime::Vector<T> first;
    runtime::Vector<T> second;
  };
  using Shard = detail::ShardPointers<T>;

  template<class Update>
  void update(runtime::DefaultExec const& exec, char const* label, Update const& update_number) const;

  OptimizerSettings settings_;
  std::vector<ParameterShard<T>> parameters_; // keep alive what shards_ points to
  std::vector<Moments> moments_;
  std::vector<Shard> shards_;
  runtime::Vector<Shard> device_shards_;            // the same, for the kernel over all
  runtime::Vector<double> num_steps_;               // [2] t, and the reduction of the rate
  runtime::Vector<detail::StepFactors<T>> factors_; // [1]
};

extern template class Optimizer<float>;
extern template class Optimizer<double>;

} // namespace orthant::models
