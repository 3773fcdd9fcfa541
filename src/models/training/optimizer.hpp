#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Optimizers on shards. Each rank updates its piece of every parameter, with moments of the same shape, so nothing is communicated.
// With g the gradient (times the clip scale), w the value, t = 1, 2, ..:
//
//   sgd     g += wd w;  m = mu m + g;  w -= lr m
//   adam    g += wd w;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//           w -= lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
//   adamw   w -= lr wd w, then adam with wd = 0
//   lion    w -= lr (sign(b1 m + (1 - b1) g) + wd w);  m = b2 m + (1 - b2) g        sign(0) = 0
//   jorge   m = mu m + g;  w -= lr (m + wd w)      for weight matrices, Jorge::step() has put the preconditioned step in place of g before,
//                                                 and m := g
//
// Adam and lion may keep m and v in bf16, or in 8 bits per number (packed_moments.hpp).
//
// Of a pruned weight the kept entries alone are updated, and have moments (pruning/pruned_weights.hpp).
//
// lr is the rate of step t (learning_rate.hpp). t, lr and the scale are in device memory: a step does not access host memory and
// may be replayed. The values, m, v and t are the complete state of a training. Sources: Kingma & Ba (arXiv 1412.6980), Loshchilov
// & Hutter (arXiv 1711.05101), Chen et al. (arXiv 2302.06675, algorithm 2).

#include "models/training/jorge/jorge.hpp"
#include "models/training/learning_rate.hpp"
#include "models/training/packed_moments.hpp"
#include "models/training/pruning/pruned_weights.hpp"
#include "pmm/cost/step_plan.hpp"
#include "runtime/arrays/views.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orthant::models {

enum class OptimizerKind : std::uint8_t { adam, adamw, sgd, lion, jorge };

/// Accepts "adam", "adamw", "sgd", "lion" or "jorge". Throws UserError for other words.
[[nodiscard]] OptimizerKind parse_optimizer(std::string_view word);

struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::adam;
  double learning_rate = 0.01; // the full rate, before the schedule
  RateSchedule schedule;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double momentum = 0.9;                       // sgd and jorge
  MomentFormat moments = MomentFormat::native; // sgd and jorge: native only
  int zero_stage =
      0; // of states that are sharded over the batch axes (gradient_shards.hpp): 0, 1 or 2; jorge: 0 only
  JorgeSettings jorge{};
  PruneSettings pruning{}; // native moments, native messages of gradients, and no sharded states
  runtime::Wire gradient_wire =
      runtime::Wire::native; // format of sums over the batch axes (gradient_sum.hpp)
};

/// This rank's piece of a parameter, its gradient and its weight decay.
template<class T>
struct ParameterShard {
  runtime::Vector<T> value;
  runtime::Vector<T> gradient;
  double weight_decay = 0;
  bool is_preconditioned = false;                // the gradient is already m of jorge
  std::optional<KeptPlaces> kept = std::nullopt; // elements that are updated, unless all are

  /// Number of elements that are updated, which is that of the gradient and of the moments.
  [[nodiscard]] std::int64_t num_updated() const {
    return static_cast<std::int64_t>(kept ? kept->extent(0) : value.extent(0));
  }
};

/// Parameters that this rank updates.
struct UpdatedParameters {
  std::vector<std::int64_t> lengths{}; // number of elements of each on this rank that are updated
  std::vector<TiledMatrix> matrices{}; // those that jorge preconditions
  std::vector<std::int64_t> kept{};    // numbers of kept entries of pruned weights
};

/// Lists the arrays of an Optimizer.
void plan_optimizer_arrays(pmm::StepPlan& step, OptimizerSettings const& settings,
                           UpdatedParameters const& parameters);

/// Lists the pass of Optimizer::step.
void plan_optimizer_step(pmm::StepPlan& step, OptimizerSettings const& settings,
                         UpdatedParameters const& parameters);

/// An array of the optimizer for a parameter: m or v, with PyTorch's names. It has as many elements as this rank's piece of the
/// parameter, in the same order; of a pruned weight, as many as entries are kept. Copies share memory.
template<class T>
struct OptimizerArray {
  std::string name;           // "exp_avg", "exp_avg_sq"; lion: "exp_avg"; sgd and jorge: "momentum_buffer"
  runtime::Vector<T> numbers; // empty if they are packed
  PackedMoment packed;
  std::optional<KeptPlaces> kept = std::nullopt; // places of the numbers in the piece, of a pruned weight
};

namespace detail {
/// Kernel arguments for the update of one parameter.
template<class T>
struct ShardPointers {
  std::int64_t end = 0; // one past its last element, counted over all parameters
  T* value = nullptr;
  T const* gradient = nullptr;
  T* first = nullptr; // moments; null without moments
  T* second = nullptr;
  T coupled_decay = 0;                // added to the gradient
  double decoupled_decay = 0;         // the value is multiplied by 1 - lr times this
  std::int32_t const* kept = nullptr; // places in `value` of the elements that are updated; null for all
};

/// The same with packed moments, which blocks of the kernel widen and pack.
template<class T>
struct PackedShard {
  ShardPointers<T> shard;     // first and second: null
  std::int64_t end_block = 0; // one past its last block, counted over all parameters
  std::int64_t length = 0;
  PackedPointers first, second; // second: native if there is none
};

/// Factors of a step, common to all parameters.
template<class T>
struct StepFactors {
  T gradient_scale = 1;
  T step_size = 0;           // lr / (1 - b1^t); sgd, lion and jorge: lr
  T inverse_correction2 = 0; // 1 / (1 - b2^t)
};
} // namespace detail

template<class T>
class Optimizer {
 public:
  /// Allocates the moments, filled with zeros; none for sgd without momentum, and for preconditioned parameters. The number of steps must
  /// be known if the rate decays over it; otherwise throws Error.
  Optimizer(OptimizerSettings const& settings, std::vector<ParameterShard<T>> const& parameters);

  /// Updates every parameter once. Kernels read `gradient_scale` and multiply the gradients by it first (clipping), and write the learning
  /// rate of this step to `learning_rate`. Two kernels (on the host: one per parameter), one pass. Enqueues on exec; does not fence.
  void step(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
            runtime::Number<double> const& gradient_scale, runtime::Number<double> const& learning_rate);

  /// Frees what the optimizer holds of memory of gradients. Before the next step, set_gradients() must be called.
  void release_gradients();
  /// Updates only these elements of parameter p from here on, with their moments, or with 0 if only a part of
  /// them was updated before. Fences. Before the next step, set_gradients() must be called.
  void keep(runtime::DefaultExec const& exec, std::size_t p, KeptPlaces const& kept);
  /// Reads the gradients from this memory from here on: for each parameter one number per element that is updated.
  void set_gradients(std::vector<runtime::Vector<T>> const& gradients);

  /// Arrays of parameter `p`; none for sgd without momentum. Writing to them sets the state.
  [[nodiscard]] std::vector<OptimizerArray<T>> arrays(std::size_t p) const;
  /// t, the number of steps so far. Fences all kernels.
  [[nodiscard]] std::int64_t num_steps() const;
  void set_num_steps(std::int64_t num_steps);
  /// Learning rate of step `t`, counted from 1, after the plateaus so far. Fences all kernels.
  [[nodiscard]] double learning_rate(std::int64_t t) const;
  /// Sets the factor by which plateaus have reduced the learning rate, from the next step on (learning_rate.hpp).
  void set_rate_reduction(double reduction);

 private:
  struct Moments {
    runtime::Vector<T> first;
    runtime::Vector<T> second;
  };
  struct PackedMoments {
    PackedMoment first;
    PackedMoment second;
  };
  using Shard = detail::ShardPointers<T>;
  void allocate_moments(std::int64_t length, bool is_preconditioned);
  void list_shards();
  void list_packed_shards();

  template<class Update>
  void update(runtime::DefaultExec const& exec, char const* label, Update const& update_number) const;

  OptimizerSettings settings_;
  std::vector<ParameterShard<T>> parameters_; // own the memory that shards_ points to
  std::vector<Moments> moments_;
  std::vector<PackedMoments> packed_; // in place of moments_
  std::vector<Shard> shards_;
  runtime::Vector<detail::PackedShard<T>> packed_shards_;
  std::int64_t num_blocks_ = 0;                     // of packed moments of all parameters
  runtime::Vector<Shard> device_shards_;            // shards_, for the kernel over all parameters
  runtime::Vector<double> num_steps_;               // [2] t, and the factor of the rate
  runtime::Vector<detail::StepFactors<T>> factors_; // [1]
};

extern template class Optimizer<float>;
extern template class Optimizer<double>;

} // namespace orthant::models
