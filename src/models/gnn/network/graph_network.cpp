// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/network/graph_network.hpp"

#include "runtime/comm/together.hpp"

#include <span>

namespace orthant::models {

template<class T>
GraphNetwork<T>::GraphNetwork(pmm::ProcessGrid const& grid, NetworkSettings const& settings,
                              std::shared_ptr<NetworkParameters<T>> parameters)
    : settings_(settings),
      parameters_(std::move(parameters)),
      passes_(make_network_passes<T>(grid, settings, parameters_)) {}

template<class T>
GraphNetwork<T>::GraphNetwork(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                              NetworkSettings const& settings)
    : settings_(settings) {
  ORTHANT_ASSERT_SAME(grid.group(), settings.seed);
  ORTHANT_ASSERT_SAME(grid.group(), settings.num_layers());
  auto const plan = plan_network(store, settings);
  parameters_ = std::make_shared<NetworkParameters<T>>(grid, plan, settings);
  passes_ = make_network_passes<T>(grid, settings, parameters_);
  auto operands = make_full_graph_operands<T>(grid, store, plan, settings);
  if (settings.trains_features)
    parameters_->add_features(operands.features.dense, operands.features.ids, settings);
  rebind(std::move(operands));
}

template class GraphNetwork<float>;
template class GraphNetwork<double>;

// Checks of a network's outputs, for messages about failed training.

using runtime::DefaultExec;

template<class T>
std::int64_t TypedNetworkPasses<T>::first_layer_not_finite(DefaultExec const& exec) const {
  auto const num_layers = static_cast<std::int64_t>(layers_.size()), none = num_layers + 1;
  auto first = head_ && !is_finite(exec, head_->output()) ? num_layers : none;
  // If an output was overwritten, the aggregate of the next layer is checked instead.
  for (std::size_t l = layers_.size(); l-- > 0;)
    if (!(plan_.layers[l].makes_logits ? is_finite(exec, layers_[l].logits())
          : keeps_output(l)            ? is_finite(exec, layers_[l].output())
                                       : is_finite(exec, layers_[l + 1].middle())))
      first = static_cast<std::int64_t>(l);
  first = runtime::all_reduced(grid_.group(), first, runtime::Reduction::min);
  if (first == none && shares_outputs_) return num_layers - 1; // the loss has overwritten the output
  return first == none ? -1 : first;
}

template<class T>
std::vector<std::int64_t> TypedNetworkPasses<T>::dead_layers(DefaultExec const& exec) const {
  if (settings_.activation != Activation::relu) return {};
  std::vector<std::int64_t> counts;
  for (std::size_t l = 0; l < activations_.size(); ++l)
    counts.push_back(activations_[l].num_positive(exec));
  runtime::all_reduce(runtime::host, grid_.world(),
                      std::span(counts)); // on the host: not counted as a message
  std::vector<std::int64_t> dead;
  for (std::size_t l = 0; l < counts.size(); ++l)
    if (counts[l] == 0) dead.push_back(static_cast<std::int64_t>(l));
  return dead;
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template std::int64_t TypedNetworkPasses<T>::first_layer_not_finite(DefaultExec const&) const;             \
  template std::vector<std::int64_t> TypedNetworkPasses<T>::dead_layers(DefaultExec const&) const;
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
ORTHANT_INSTANTIATE(runtime::Bf16Number)
ORTHANT_INSTANTIATE(runtime::Fp16Number)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
