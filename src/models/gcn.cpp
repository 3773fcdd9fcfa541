// SPDX-License-Identifier: Apache-2.0
#include "models/gcn.hpp"

#include <algorithm>

namespace orthant::models {
namespace {

using runtime::DefaultExec;
using runtime::ScopedTimer;

/// Features that are trained are sharded, like all parameters.
bool needs_input_gradient(GcnLayerPlan const& layer) {
  return layer.index > 0 || layer.input.layout.storage == pmm::Storage::flat_sharded;
}

template<class T>
bool is_finite(DefaultExec const& exec, pmm::DistMatrix<T> const& matrix) {
  auto const data = matrix.storage();
  auto num_bad = std::int64_t{0};
  Kokkos::parallel_reduce(
      "orthant::models::is_finite",
      Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, matrix.block().num_stored),
      KOKKOS_LAMBDA(std::int64_t i, std::int64_t & bad) {
        auto const difference = data(static_cast<std::size_t>(i)) - data(static_cast<std::size_t>(i));
        bad += difference == T{0} ? 0 : 1; // inf - inf and NaN - NaN are NaN
      },
      num_bad);
  return num_bad == 0;
}

} // namespace

template<class T>
Gcn<T>::Gcn(pmm::ProcessGrid const& grid, GcnSettings const& settings,
            std::shared_ptr<GcnParameters<T>> parameters)
    : grid_(grid),
      settings_(settings),
      parameters_(std::move(parameters)),
      memory_(parameters_->num_layers()) {}

template<class T>
Gcn<T>::Gcn(pmm::ProcessGrid const& grid, graph::GraphStore const& store, GcnSettings const& settings)
    : grid_(grid),
      settings_(settings) {
  auto const plan = plan_gcn(store, settings);
  parameters_ = std::make_shared<GcnParameters<T>>(grid, plan, settings);
  memory_.resize(parameters_->num_layers());
  auto operands = make_full_graph_operands<T>(grid, store, plan, settings);
  if (settings.trains_features) parameters_->add_features(operands.features.dense);
  rebind(std::move(operands));
}

template<class T>
void Gcn<T>::require_fitting(GcnOperands<T> const& operands) const {
  auto const& layers = operands.plan.layers;
  ORTHANT_REQUIRE(layers.size() == parameters_->num_layers() && operands.adjacency.size() == layers.size() &&
                      operands.output_keys.size() == layers.size(),
                  layers.size(), " layers, ", operands.adjacency.size(), " blocks and ",
                  operands.output_keys.size(), " keys for ", parameters_->num_layers(), " weights");
  for (std::size_t l = 0; l < layers.size(); ++l)
    ORTHANT_REQUIRE(layers[l].weight == parameters_->layer(l).weight.placement(), "layer ", l, " needs ",
                    layers[l].weight.to_string(), "; there is ",
                    parameters_->layer(l).weight.placement().to_string());
}

template<class T>
void Gcn<T>::reserve_scratch() {
  auto gradient = std::int64_t{0};
  auto middle = std::int64_t{0};
  for (auto const& layer : plan_.layers) {
    gradient = std::max({gradient, pmm::block_of(grid_, layer.output).num_padded,
                         needs_input_gradient(layer) ? pmm::block_of(grid_, layer.input).num_padded : 0});
    middle = std::max(middle, pmm::block_of(grid_, layer.middle).num_padded);
  }
  static_cast<void>(scratch_.gradient.reserve(gradient));
  static_cast<void>(scratch_.middle.reserve(middle));
}

template<class T>
void Gcn<T>::rebind(GcnOperands<T> operands) {
  require_fitting(operands);
  layers_.clear(); // they hold the memory that is about to grow
  plan_ = std::move(operands.plan);
  input_.bind(std::move(operands.features), settings_.dropout);
  output_keys_ = std::move(operands.output_keys);
  reserve_scratch();
  layers_.reserve(plan_.layers.size());
  for (std::size_t l = 0; l < plan_.layers.size(); ++l)
    layers_.emplace_back(grid_, plan_.layers[l], operands.adjacency[l], parameters_->layer(l),
                         GcnLayerOptions{.has_bias = settings_.has_bias,
                                         .needs_input_gradient = needs_input_gradient(plan_.layers[l]),
                                         .overlaps = settings_.overlaps,
                                         .wire = settings_.wire},
                         scratch_, memory_[l]);
  keeps_first_aggregate_ =
      plan_.layers.front().aggregates_first && !input_.is_sparse() && !settings_.trains_features;
  has_first_aggregate_ = false;
}

template<class T>
Dropout Gcn<T>::dropout_of(std::uint64_t step, std::uint32_t layer) const {
  return {dropout_in_use_, runtime::RandomStream(settings_.seed, runtime::Purpose::dropout, step, layer)};
}

template<class T>
pmm::DistMatrix<T> const& Gcn<T>::forward(DefaultExec const& exec, Pass pass, std::uint64_t step,
                                          runtime::PhaseTimes& phases) {
  auto& instruments = grid_.world().instruments();
  dropout_in_use_ = pass == Pass::training ? settings_.dropout : 0.0;
  step_in_use_ = step;
  {
    ScopedTimer const timer(instruments, phases, "input");
    input_.prepare(exec, dropout_of(step, 0));
  }
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    auto& layer = layers_[l];
    {
      ScopedTimer const timer(instruments, phases, "forward");
      if (l > 0)
        layer.forward(exec, layers_[l - 1].output());
      else if (input_.is_sparse())
        layer.forward(exec, input_.sparse());
      else if (has_first_aggregate_ && dropout_in_use_ == 0)
        layer.forward_from_middle(exec);
      else
        layer.forward(exec, input_.dense());
      // With dropout the aggregate is that of one step alone.
      if (l == 0) has_first_aggregate_ = keeps_first_aggregate_ && dropout_in_use_ == 0;
    }
    if (l + 1 < layers_.size()) {
      ScopedTimer const timer(instruments, phases, "activation");
      relu_dropout(exec, layer.output().local(), dropout_of(step, static_cast<std::uint32_t>(l) + 1),
                   output_keys_[l]);
    }
  }
  if (has_first_aggregate_ && settings_.dropout == 0)
    input_.release(); // A^ F0 is all that layer 0 reads from now on
  return logits();
}

template<class T>
void Gcn<T>::backward(DefaultExec const& exec, runtime::PhaseTimes& phases) {
  auto& instruments = grid_.world().instruments();
  for (auto l = layers_.size(); l-- > 0;) {
    auto& layer = layers_[l];
    {
      ScopedTimer const timer(instruments, phases, "backward");
      if (l > 0)
        layer.backward(exec, layers_[l - 1].output());
      else if (input_.is_sparse())
        layer.backward(exec, input_.sparse());
      else {
        auto const& gradient = layer.backward(exec, input_.dense());
        if (settings_.trains_features) {
          input_.backward(exec, dropout_of(step_in_use_, 0), gradient);
          Kokkos::deep_copy(exec, parameters_->features_gradient().storage(), gradient.storage());
        }
      }
    }
    if (l > 0) {
      ScopedTimer const timer(instruments, phases, "activation");
      // dQ of the layer below lies where this layer's dF does.
      relu_dropout_backward(exec, layers_[l - 1].output().local(), dropout_in_use_,
                            layers_[l - 1].output_gradient().local());
    }
  }
}

template<class T>
std::int64_t Gcn<T>::first_layer_not_finite(DefaultExec const& exec) const {
  auto const none = static_cast<std::int64_t>(layers_.size());
  auto first = none;
  for (std::size_t l = layers_.size(); l-- > 0;)
    if (!is_finite(exec, layers_[l].output())) first = static_cast<std::int64_t>(l);
  first = runtime::all_reduced(grid_.group(), first, runtime::Reduction::min);
  return first == none ? -1 : first;
}

template class Gcn<float>;
template class Gcn<double>;

} // namespace orthant::models
