// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/network/graph_network.hpp"

#include "runtime/comm/together.hpp"

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

} // namespace orthant::models
