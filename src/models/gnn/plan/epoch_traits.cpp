// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/plan/epoch_traits.hpp"

#include "models/gnn/operands/owned_adjacency.hpp"
#include "models/training/vertex_loss.hpp"

namespace orthant::models {

std::int64_t even_share(std::int64_t count, pmm::GridShape const& shape, pmm::Layout const& layout) {
  auto const blocks = std::int64_t{shape.size(layout.rows)} * shape.size(layout.columns);
  return (count + blocks - 1) / blocks;
}

LinkPlan link_plan_of(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                      NetworkPlan const& plan, NetworkSettings const& settings) {
  auto links = make_link_plan(shape, coordinates, plan.layers.front().owners.value().roles, plan.logits());
  if (settings.decoder_width > 0) links.decoder = DecoderShape{settings.decoder_width, settings.has_bias};
  return links;
}

namespace {

void set_dropped(NetworkEpochTraits& traits, graph::StoreFacts const& facts, pmm::GridShape const& shape,
                 pmm::Coordinates const& coordinates, NetworkPlan const& plan) {
  traits.weighs_edges = facts.is_weighted;
  auto const& first = plan.layers.front();
  if (first.owners) { // one block for all layers
    traits.dropped = {first.adjacency};
    traits.num_dropped_ways = num_dropped_blocks(facts);
    return;
  }
  pmm::StepPlan unused(shape, coordinates, sizeof(float));
  AdjacencyBlocksPlan blocks(facts, [](pmm::Placement const&) { return std::int64_t{0}; });
  for (auto const& layer : plan.layers)
    if (layer.aggregates()) blocks.get(unused, layer.adjacency, layer.is_even);
  traits.dropped = blocks.read();
}

} // namespace

NetworkEpochTraits traits_of(graph::StoreFacts const& facts, pmm::GridShape const& shape,
                             pmm::Coordinates const& coordinates, NetworkPlan const& plan,
                             NetworkSettings const& settings) {
  NetworkEpochTraits traits;
  traits.has_sparse_features = facts.feature_kind == graph::FeatureKind::sparse;
  traits.features_have_values = facts.features_have_values;
  traits.keeps_first_aggregate =
      keeps_first_aggregate(plan) && !traits.has_sparse_features && settings.dropout == 0;
  traits.loss = loss_kind_of(facts);
  if (plan.drops_edges) set_dropped(traits, facts, shape, coordinates, plan);
  if (predicts_links(settings))
    traits.links = mean_link_counts(shape, facts, link_plan_of(shape, coordinates, plan, settings));
  traits.num_nonzeros = [=, in_features = facts.num_feature_entries,
                         in_adjacency = facts.num_operator_entries(),
                         features = plan.features()](pmm::Placement const& placement) {
    return even_share(placement == features ? in_features : in_adjacency, shape, placement.layout);
  };
  auto const sizes_between = [=, has_two_orders = facts.has_two_orders()](pmm::Placement const& input,
                                                                          pmm::Placement const& output,
                                                                          bool is_backward) {
    auto const orders = has_two_orders && input.layout.row_order != output.layout.row_order
                            ? pmm::RowOrders::independent
                            : pmm::RowOrders::equal;
    return is_backward ? pmm::expected_sizes(shape, coordinates, output, input, orders)
                       : pmm::expected_sizes(shape, coordinates, input, output, orders);
  };
  traits.residual_sizes = [=](NetworkLayerPlan const& layer, bool is_backward) {
    return sizes_between(layer.input, layer.output, is_backward);
  };
  traits.self_sizes = [=](NetworkLayerPlan const& layer, bool is_backward) {
    return sizes_between(layer.aggregated(), layer.aggregate(), is_backward);
  };
  traits.teleport_sizes = [=](NetworkPlan const& of, pmm::Placement const& site, bool is_backward) {
    return sizes_between(teleport_start(of), site, is_backward);
  };
  return traits;
}

} // namespace orthant::models
