// SPDX-License-Identifier: Apache-2.0
#include "models/gcn_operands.hpp"

namespace orthant::models {

bool drops_output(GcnPlan const& plan, GcnSettings const& settings, std::size_t l) {
  auto const gives_logits = l + 1 == plan.layers.size() && !plan.head;
  return settings.dropout > 0 && !gives_logits;
}

template<class T>
GcnOperands<T> make_full_graph_operands(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                        GcnPlan const& plan, GcnSettings const& settings) {
  GcnOperands<T> operands;
  operands.plan = plan;
  operands.features = read_input_features<T>(grid, store, plan.features(), settings.feature_norm);
  AdjacencyBlocks<T> adjacency(grid, store);
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    auto const& layer = plan.layers[l];
    operands.adjacency.push_back(adjacency.get(layer.adjacency, layer.is_even));
    operands.output_keys.push_back(
        drops_output(plan, settings, l) ? read_block_keys(grid, store, layer.output) : BlockKeys{});
  }
  return operands;
}

template GcnOperands<float> make_full_graph_operands(pmm::ProcessGrid const&, graph::GraphStore const&,
                                                     GcnPlan const&, GcnSettings const&);
template GcnOperands<double> make_full_graph_operands(pmm::ProcessGrid const&, graph::GraphStore const&,
                                                      GcnPlan const&, GcnSettings const&);

} // namespace orthant::models
