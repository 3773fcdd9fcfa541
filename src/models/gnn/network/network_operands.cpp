// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/network/network_operands.hpp"

#include "models/gnn/aggregation/edge_operands.hpp"
#include "models/gnn/aggregation/self_term.hpp"
#include "models/gnn/aggregation/teleport.hpp"
#include "runtime/comm/together.hpp"

#include <numeric>

namespace orthant::models {
namespace {

/// Rows of one order are found in the other by the store's permutations.
template<class T>
ResidualPath<T> read_residual_path(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                   pmm::Placement const& input, pmm::Placement const& output) {
  auto const is_one_order = input.layout.row_order == output.layout.row_order;
  auto const other_rows = [&](pmm::Placement const& placement) {
    auto const rows = pmm::block_of(grid, placement).rows;
    return runtime::together(grid.group(), [&] {
      if (!is_one_order) return store.read_other_positions(order_of(placement.layout.row_order), rows);
      std::vector<std::int64_t> same(static_cast<std::size_t>(rows.size()));
      std::iota(same.begin(), same.end(), rows.begin);
      return same;
    });
  };
  if (input == output) return ResidualPath<T>::local();
  return make_residual_path<T>(grid, input, output, other_rows(output), other_rows(input));
}

} // namespace

bool has_output_keys(NetworkPlan const& plan, NetworkSettings const& settings, std::size_t l) {
  return settings.dropout > 0 && is_activated(plan, l) &&
         (plan.layers[l].drops_output || plan.layers[l].second || drops_start(plan, l + 1));
}

void plan_adjacency(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                    NetworkEpochTraits const& traits) {
  auto const& first = plan.layers.front();
  if (first.owners) // one block for all layers
    return plan_owned_adjacency(step, first.reads_edges() ? without_transpose(facts) : facts,
                                cells_of(step, first), traits.num_nonzeros(first.adjacency),
                                plan.drops_edges);
  AdjacencyBlocksPlan blocks(facts, traits.num_nonzeros, plan.drops_edges);
  for (auto const& layer : plan.layers)
    if (layer.aggregates()) blocks.get(step, layer.adjacency, layer.is_even);
}

void plan_adjacency_products(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                             NetworkEpochTraits const& traits) {
  AdjacencyBlocksPlan blocks(facts, traits.num_nonzeros);
  for (auto const& layer : plan.layers) {
    if (!layer.keeps_weights(aggregated_columns(step.shape(), step.coordinates(), layer))) continue;
    if (!layer.owners) {
      for (auto const products : {AdjacencyProducts::direct, AdjacencyProducts::adjoint})
        blocks.keep_weights(step, layer.adjacency, layer.is_even, products);
      continue;
    }
    // Owners have one block for all layers, which is its own adjoint if A^ is symmetric.
    auto const& adjacency = plan.layers.front().adjacency;
    blocks.keep_weights(step, adjacency, true, AdjacencyProducts::direct);
    if (!is_operator_symmetric(facts)) blocks.keep_weights(step, adjacency, true, AdjacencyProducts::adjoint);
  }
}

void plan_operands(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                   NetworkSettings const& settings, NetworkEpochTraits const& traits,
                   pmm::Lifetime features) {
  plan_adjacency(step, facts, plan, traits);
  plan_adjacency_products(step, facts, plan, traits);
  if (auto const& first = plan.layers.front(); first.owners && first.reads_edges())
    plan_edges(step, cells_of(step, first), traits.num_nonzeros(first.adjacency), needs_edge_ids(settings));
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    auto const& layer = plan.layers[l];
    if (has_output_keys(plan, settings, l)) plan_block_keys(step, layer.result());
    if (needs_column_ids(layer))
      step.add_array("orthant::models::original_ids",
                     step.block(layer.adjacency).columns.size() * std::int64_t{sizeof(std::int64_t)});
    plan_residual_arrays(step, layer, traits);
    plan_self_path_arrays(step, layer, traits);
  }
  plan_teleport_path_arrays(step, plan, traits);
  plan_input_features(step, facts, plan.features(), settings.feature_norm, traits.num_feature_nonzeros(plan),
                      features);
}

template<class T>
NetworkOperands<T> make_full_graph_operands(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                            NetworkPlan const& plan, NetworkSettings const& settings) {
  // Features last: if they are rounded, they are there only until they are bound.
  auto operands = make_full_graph_operands<T>(grid, store, plan, settings, InputFeatures<T>{}, std::nullopt);
  operands.features = read_input_features<T>(grid, store, plan.features(), settings.feature_norm);
  operands.features.may_move = true;
  return operands;
}

template<class T>
NetworkOperands<T> make_full_graph_operands(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                            NetworkPlan const& plan, NetworkSettings const& settings,
                                            InputFeatures<T> features,
                                            std::optional<OwnedAdjacency<T>> owned) {
  NetworkOperands<T> operands;
  operands.plan = plan;
  operands.features = std::move(features);
  auto* const dropped = plan.drops_edges ? &operands.dropped : nullptr;
  ORTHANT_REQUIRE(!owned || dropped == nullptr, "edges of a block that has been read are not dropped");
  AdjacencyBlocks<T> blocks(grid, store, dropped);
  // One block for all layers.
  if (auto const& owners = plan.layers.front().owners; owners && !owned)
    owned = plan.layers.front().reads_edges()
                ? read_edges<T>(grid, store, owners->roles, needs_edge_ids(settings))
                : read_owned_adjacency<T>(grid, store, owners->roles, settings.gather, dropped);
  for (auto const& layer : plan.layers)
    operands.adjacency.push_back(owned ? Adjacency<T>(*owned)
                                 : layer.aggregates()
                                     ? Adjacency<T>(blocks.get(layer.adjacency, layer.is_even))
                                     : Adjacency<T>());
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    auto const& layer = plan.layers[l];
    operands.output_keys.push_back(
        has_output_keys(plan, settings, l) ? read_block_keys(grid, store, layer.result()) : BlockKeys{});
    if (needs_column_ids(layer)) {
      auto const columns = pmm::block_of(grid, layer.adjacency).columns;
      operands.column_ids.push_back(runtime::together(grid.group(), [&] {
        return read_ids(store, order_of(layer.adjacency.layout.column_order), columns);
      }));
    }
    operands.residuals.push_back(layer.is_residual
                                     ? read_residual_path<T>(grid, store, layer.input, layer.output)
                                     : ResidualPath<T>{});
    operands.self_paths.push_back(
        layer.reads_itself() ? read_residual_path<T>(grid, store, layer.aggregated(), layer.aggregate())
                             : ResidualPath<T>{});
  }
  if (plan.teleport)
    for (auto const& site : plan.teleport->sites)
      operands.teleport_paths.push_back(read_residual_path<T>(grid, store, teleport_start(plan), site));
  return operands;
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template NetworkOperands<T> make_full_graph_operands(pmm::ProcessGrid const&, graph::GraphStore const&,    \
                                                       NetworkPlan const&, NetworkSettings const&);          \
  template NetworkOperands<T> make_full_graph_operands(pmm::ProcessGrid const&, graph::GraphStore const&,    \
                                                       NetworkPlan const&, NetworkSettings const&,           \
                                                       InputFeatures<T>, std::optional<OwnedAdjacency<T>>);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
