// SPDX-License-Identifier: Apache-2.0
#include "models/gcn.hpp"

#include <algorithm>
#include <cmath>

namespace orthant::models {
namespace {

using runtime::DefaultExec;
using runtime::ScopedTimer;

std::vector<std::int64_t> widths_of(graph::StoreFacts const& facts, GcnSettings const& settings) {
  std::vector<std::int64_t> widths{facts.num_features};
  widths.insert(widths.end(), settings.hidden_widths.begin(), settings.hidden_widths.end());
  widths.push_back(facts.num_classes);
  return widths;
}

/// Features that are trained are sharded, like all parameters.
bool needs_input_gradient(GcnLayerPlan const& layer) {
  return layer.index > 0 || layer.input.layout.storage == pmm::Storage::flat_sharded;
}

template<class T>
GcnScratch<T> scratch_for(pmm::ProcessGrid const& grid, std::vector<GcnLayerPlan> const& plan) {
  auto gradient = std::int64_t{0};
  auto middle = std::int64_t{0};
  for (auto const& layer : plan) {
    gradient = std::max({gradient, pmm::block_of(grid, layer.output).num_padded,
                         needs_input_gradient(layer) ? pmm::block_of(grid, layer.input).num_padded : 0});
    middle = std::max(middle, pmm::block_of(grid, layer.middle).num_padded);
  }
  GcnScratch<T> scratch;
  scratch.gradient = runtime::Vector<T>("orthant::models::gradient", static_cast<std::size_t>(gradient));
  scratch.middle = runtime::Vector<T>("orthant::models::middle", static_cast<std::size_t>(middle));
  return scratch;
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

std::vector<GcnLayerPlan> plan_gcn(graph::GraphStore const& store, GcnSettings const& settings) {
  auto const& facts = store.facts();
  if (facts.feature_kind == graph::FeatureKind::none)
    runtime::throw_user(
        "{} has no features; partition it with --random-features D or from data with features", store.name());
  if (facts.label_kind == graph::LabelKind::none)
    runtime::throw_user(
        "{} has no labels to train on; partition it with --random-labels C or from data with labels",
        store.name());
  auto const is_sparse = facts.feature_kind == graph::FeatureKind::sparse;
  if (is_sparse && settings.trains_features)
    runtime::throw_user("{}: sparse features cannot be trained; leave out --trainable-features",
                        store.name());
  auto plan = plan_gcn({.num_vertices = facts.num_vertices,
                        .widths = widths_of(facts, settings),
                        .has_sparse_features = is_sparse,
                        .features_need_gradient = settings.trains_features,
                        .has_input_dropout = settings.dropout > 0},
                       settings.order);
  if (settings.trains_features) plan.front().input.layout.storage = pmm::Storage::flat_sharded;
  return plan;
}

template<class T>
Gcn<T>::Gcn(pmm::ProcessGrid const& grid, graph::GraphStore const& store, GcnSettings const& settings)
    : grid_(grid),
      settings_(settings),
      plan_(plan_gcn(store, settings)),
      input_(grid, store, plan_.front().input, settings.feature_norm, settings.dropout) {
  auto const scratch = scratch_for<T>(grid, plan_);
  AdjacencyBlocks<T> adjacency(grid, store);
  for (auto const& layer : plan_) {
    auto const is_first = layer.index == 0;
    layers_.emplace_back(grid, layer, adjacency.get(layer.adjacency, layer.is_even),
                         GcnLayerOptions{.has_bias = settings.has_bias,
                                         .needs_input_gradient = !is_first || settings.trains_features,
                                         .overlaps = settings.overlaps,
                                         .is_activated = layer.index + 1 < settings.num_layers(),
                                         .wire = settings.wire},
                         scratch);
    auto const is_last = layer.index + 1 == settings.num_layers();
    output_keys_.push_back(is_last || settings.dropout == 0 ? BlockKeys{}
                                                            : read_block_keys(grid, store, layer.output));
  }
  keeps_first_aggregate_ = plan_.front().aggregates_first && !input_.is_sparse() && !settings.trains_features;

  for (auto const& layer : layers_) {
    auto const index = layer.plan().index;
    auto const name = "layer" + std::to_string(index);
    parameters_.push_back({name + ".weight", index, layer.weight(), layer.weight_gradient(), {}, {}, false});
    if (settings.has_bias)
      parameters_.push_back({name + ".bias", index, {}, {}, layer.bias(), layer.bias_gradient(), true});
  }
  if (settings.trains_features) {
    input_gradient_ = pmm::DistMatrix<T>(grid, plan_.front().input, "orthant::models::feature_gradient");
    parameters_.push_back({"features", 0, input_.parameter(), input_gradient_, {}, {}, false});
  }
  initialise(DefaultExec());
}

// Glorot & Bengio (2010): uniform in +- sqrt(6 / (in + out)), drawn by global row and column.
template<class T>
void Gcn<T>::initialise(DefaultExec const& exec) {
  for (auto const& layer : layers_) {
    auto const extents = layer.weight().extents();
    auto const limit = std::sqrt(6.0 / static_cast<double>(extents.rows + extents.columns));
    runtime::RandomStream const stream(settings_.seed, runtime::Purpose::weights, 0,
                                       static_cast<std::uint32_t>(layer.plan().index));
    pmm::fill(
        exec, layer.weight(), KOKKOS_LAMBDA(std::int64_t row, std::int64_t column) {
          auto const u = stream.template uniform<double>(static_cast<std::uint64_t>(row),
                                                         static_cast<std::uint64_t>(column));
          return static_cast<T>(limit * (2 * u - 1));
        });
  }
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
      bias_relu_dropout(exec, layer.output().local(), layer.bias().local(),
                        dropout_of(step, static_cast<std::uint32_t>(l) + 1), output_keys_[l]);
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
          Kokkos::deep_copy(exec, input_gradient_.storage(), gradient.storage());
        }
      }
    }
    if (l > 0) {
      ScopedTimer const timer(instruments, phases, "activation");
      // dQ of the layer below lies where this layer's dF does.
      auto const& below = layers_[l - 1];
      if (settings_.has_bias)
        relu_dropout_backward_sum(exec, below.output().local(), dropout_in_use_,
                                  below.output_gradient().local(), below.bias_gradient().local());
      else
        relu_dropout_backward(exec, below.output().local(), dropout_in_use_, below.output_gradient().local());
    }
  }
}

template<class T>
std::int64_t Gcn<T>::num_parameters() const {
  auto count = std::int64_t{0};
  for (auto const& parameter : parameters_)
    count += parameter.is_bias ? parameter.bias.length()
                               : parameter.matrix.extents().rows * parameter.matrix.extents().columns;
  return count;
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
