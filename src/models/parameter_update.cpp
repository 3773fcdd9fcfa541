// SPDX-License-Identifier: Apache-2.0
#include "models/parameter_update.hpp"

#include "pmm/norms.hpp"

#include <algorithm>
#include <cmath>

namespace orthant::models {
namespace {

using runtime::ScopedTimer;

template<class T>
std::vector<ParameterShard<T>> shards_of(std::vector<Parameter<T>> const& parameters,
                                         TrainSettings const& settings) {
  std::vector<ParameterShard<T>> shards;
  for (auto const& parameter : parameters) {
    auto const of_layer = parameter.layer == 0
                              ? settings.weight_decay_first_layer.value_or(settings.weight_decay)
                              : settings.weight_decay;
    auto const is_weight = !parameter.is_bias && parameter.name != "features";
    shards.push_back({parameter.value(), parameter.gradient(), is_weight ? of_layer : 0.0});
  }
  return shards;
}

} // namespace

template<class T>
ParameterUpdate<T>::ParameterUpdate(pmm::ProcessGrid const& grid, std::vector<Parameter<T>> parameters,
                                    TrainSettings const& settings)
    : grid_(grid),
      parameters_(std::move(parameters)),
      clip_norm_(settings.clip_norm),
      optimizer_(settings.optimizer, shards_of(parameters_, settings)) {}

/// The Frobenius norm of each parameter's gradient. One all_reduce.
template<class T>
std::vector<double> ParameterUpdate<T>::gradient_norms(runtime::DefaultExec const& exec) const {
  std::vector<double> squares;
  for (auto const& parameter : parameters_)
    squares.push_back(parameter.is_bias ? pmm::local_squared_norm(exec, parameter.bias_gradient)
                                        : pmm::local_squared_norm(exec, parameter.matrix_gradient));
  pmm::sum_over_group(grid_, squares);
  for (auto& square : squares)
    square = std::sqrt(square);
  return squares;
}

template<class T>
std::vector<double> ParameterUpdate<T>::run(runtime::DefaultExec const& exec, double factor,
                                            runtime::PhaseTimes& phases) {
  auto& instruments = grid_.world().instruments();
  std::vector<double> matrix_norms;
  auto scale = factor;
  {
    ScopedTimer const timer(instruments, phases, "norms");
    auto const norms = gradient_norms(exec);
    auto squared = 0.0;
    for (std::size_t p = 0; p < norms.size(); ++p) {
      auto const norm = factor * norms[p];
      squared += norm * norm;
      if (!parameters_[p].is_bias) matrix_norms.push_back(norm);
    }
    if (clip_norm_) scale *= std::min(1.0, *clip_norm_ / (std::sqrt(squared) + 1e-6));
  }
  ScopedTimer const timer(instruments, phases, "optimizer");
  optimizer_.step(exec, scale);
  runtime::compat::fence(exec, "orthant::models::ParameterUpdate/the clock is read");
  return matrix_norms;
}

template class ParameterUpdate<float>;
template class ParameterUpdate<double>;

} // namespace orthant::models
