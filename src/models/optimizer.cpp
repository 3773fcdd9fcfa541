// SPDX-License-Identifier: Apache-2.0
#include "models/optimizer.hpp"

#include "runtime/error.hpp"

#include <cmath>
#include <utility>

namespace orthant::models {
namespace {

using runtime::DefaultExec;
using runtime::Vector;
using Policy = Kokkos::RangePolicy<DefaultExec, std::int64_t>;

template<class T>
struct AdamStep {
  Vector<T> value;
  Vector<T> gradient;
  Vector<T> first;
  Vector<T> second;
  T gradient_scale;
  T coupled_decay; // added to the gradient
  T shrink;        // 1 - lr wd, multiplies the value
  T beta1;
  T beta2;
  T step_size;           // lr / (1 - b1^t)
  T inverse_correction2; // 1 / (1 - b2^t)
  T epsilon;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    auto const w = value(i) * shrink;
    auto const g = gradient(i) * gradient_scale + coupled_decay * w;
    auto const m = beta1 * first(i) + (T{1} - beta1) * g;
    auto const v = beta2 * second(i) + (T{1} - beta2) * g * g;
    first(i) = m;
    second(i) = v;
    value(i) = w - step_size * m / (runtime::compat::sqrt(v * inverse_correction2) + epsilon);
  }
};

template<class T>
struct SgdStep {
  Vector<T> value;
  Vector<T> gradient;
  Vector<T> velocity; // empty without momentum
  T gradient_scale;
  T decay;
  T momentum;
  T learning_rate;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    auto update = gradient(i) * gradient_scale + decay * value(i);
    if (velocity.extent(0) != 0) {
      update += momentum * velocity(i);
      velocity(i) = update;
    }
    value(i) -= learning_rate * update;
  }
};

} // namespace

OptimizerKind parse_optimizer(std::string_view word) {
  if (word == "adam") return OptimizerKind::adam;
  if (word == "adamw") return OptimizerKind::adamw;
  if (word == "sgd") return OptimizerKind::sgd;
  runtime::throw_user("--optimizer is adam, adamw or sgd, not '{}'", word);
}

template<class T>
Optimizer<T>::Optimizer(OptimizerSettings const& settings, std::vector<ParameterShard<T>> parameters)
    : settings_(settings),
      parameters_(std::move(parameters)) {
  auto const is_sgd = settings_.kind == OptimizerKind::sgd;
  auto const has_first = !is_sgd || settings_.momentum != 0;
  for (auto const& parameter : parameters_) {
    auto const count = parameter.value.extent(0);
    ORTHANT_REQUIRE(count == parameter.gradient.extent(0));
    moments_.push_back({Vector<T>("orthant::models::first_moment", has_first ? count : 0),
                        Vector<T>("orthant::models::second_moment", is_sgd ? 0 : count)});
  }
}

template<class T>
void Optimizer<T>::step(DefaultExec const& exec, double gradient_scale) {
  ++num_steps_;
  auto const t = static_cast<double>(num_steps_);
  auto const as_scalar = [](double number) { return static_cast<T>(number); };
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    auto const& [value, gradient, weight_decay] = parameters_[p];
    Policy const policy(exec, 0, static_cast<std::int64_t>(value.extent(0)));
    if (settings_.kind == OptimizerKind::sgd) {
      Kokkos::parallel_for("orthant::models::sgd_step", policy,
                           SgdStep<T>{value, gradient, moments_[p].first, as_scalar(gradient_scale),
                                      as_scalar(weight_decay), as_scalar(settings_.momentum),
                                      as_scalar(settings_.learning_rate)});
      continue;
    }
    auto const is_coupled = settings_.kind == OptimizerKind::adam;
    auto const correction1 = 1 - std::pow(settings_.beta1, t);
    auto const correction2 = 1 - std::pow(settings_.beta2, t);
    Kokkos::parallel_for("orthant::models::adam_step", policy,
                         AdamStep<T>{value, gradient, moments_[p].first, moments_[p].second,
                                     as_scalar(gradient_scale), as_scalar(is_coupled ? weight_decay : 0),
                                     as_scalar(is_coupled ? 1 : 1 - settings_.learning_rate * weight_decay),
                                     as_scalar(settings_.beta1), as_scalar(settings_.beta2),
                                     as_scalar(settings_.learning_rate / correction1),
                                     as_scalar(1 / correction2), as_scalar(settings_.epsilon)});
  }
}

template<class T>
std::int64_t Optimizer<T>::moment_bytes(OptimizerSettings const& settings) {
  auto const num_moments = settings.kind != OptimizerKind::sgd ? 2 : settings.momentum != 0 ? 1 : 0;
  return num_moments * static_cast<std::int64_t>(sizeof(T));
}

template class Optimizer<float>;
template class Optimizer<double>;

} // namespace orthant::models
