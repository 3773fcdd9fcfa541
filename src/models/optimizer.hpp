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
// Sources: Kingma & Ba (arXiv 1412.6980), Loshchilov & Hutter (arXiv 1711.05101).

#include "runtime/views.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace orthant::models {

enum class OptimizerKind : std::uint8_t { adam, adamw, sgd };

/// "adam", "adamw" or "sgd". Throws UserError for another word.
[[nodiscard]] OptimizerKind parse_optimizer(std::string_view word);

struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::adam;
  double learning_rate = 0.01;
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

template<class T>
class Optimizer {
 public:
  /// Moments are allocated here, zero; none for sgd without momentum.
  Optimizer(OptimizerSettings const& settings, std::vector<ParameterShard<T>> parameters);

  /// One update of every parameter. `gradient_scale` multiplies the gradients first (clipping). Enqueues on
  /// exec; does not fence.
  void step(runtime::DefaultExec const& exec, double gradient_scale = 1.0);

  [[nodiscard]] std::int64_t num_steps() const { return num_steps_; }

  /// Bytes of moments an element of a parameter: for the memory estimate.
  [[nodiscard]] static std::int64_t moment_bytes(OptimizerSettings const& settings);

 private:
  struct Moments {
    runtime::Vector<T> first;
    runtime::Vector<T> second;
  };
  OptimizerSettings settings_;
  std::vector<ParameterShard<T>> parameters_;
  std::vector<Moments> moments_;
  std::int64_t num_steps_ = 0;
};

extern template class Optimizer<float>;
extern template class Optimizer<double>;

} // namespace orthant::models
