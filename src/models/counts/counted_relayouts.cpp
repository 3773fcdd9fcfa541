// SPDX-License-Identifier: Apache-2.0
#include "models/counts/counted_relayouts.hpp"

#include "models/core/vertex_order.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace orthant::models {

using runtime::Range;

VertexOrders::VertexOrders(std::vector<std::int64_t> positions_in_p1,
                           std::vector<std::int64_t> positions_in_p2)
    : in_p1(std::move(positions_in_p1)),
      p2_of_p1(std::move(positions_in_p2)),
      in_p2(p2_of_p1) {
  std::ranges::sort(in_p2);
}

std::int64_t VertexOrders::count(pmm::IndexOrder order, Range range) const {
  auto const& ascending = order_of(order) == graph::Order::p1 ? in_p1 : in_p2;
  auto const begin = std::ranges::lower_bound(ascending, range.begin);
  return std::ranges::lower_bound(ascending, range.end) - begin;
}

std::int64_t VertexOrders::count_both(pmm::IndexOrder first_order, Range first, pmm::IndexOrder second_order,
                                      Range second) const {
  if (first_order == second_order) {
    auto const begin = std::max(first.begin, second.begin);
    return count(first_order, {begin, std::max(begin, std::min(first.end, second.end))});
  }
  auto const is_p1_first = order_of(first_order) == graph::Order::p1;
  auto const of_p1 = is_p1_first ? first : second;
  auto const of_p2 = is_p1_first ? second : first;
  auto const begin = std::ranges::lower_bound(in_p1, of_p1.begin) - in_p1.begin();
  auto const end = std::ranges::lower_bound(in_p1, of_p1.end) - in_p1.begin();
  return std::count_if(p2_of_p1.begin() + begin, p2_of_p1.begin() + end,
                       [&](std::int64_t place) { return of_p2.begin <= place && place < of_p2.end; });
}

void set_counted_relayouts(NetworkEpochTraits& traits, pmm::GridShape const& shape,
                           pmm::Coordinates const& coordinates, NetworkPlan const& plan,
                           VertexOrders const& orders, RelayoutRows rows) {
  using Sizes = std::array<pmm::RelayoutSizes, 2>; // forward and backward
  auto const between = [&](pmm::Placement const& from, pmm::Placement const& to) {
    auto const sizes = [&](pmm::Placement const& a, pmm::Placement const& b) {
      auto found = pmm::sampled_sizes(shape, coordinates, a, b, [&](Range given, Range wanted) {
        return orders.count_both(a.layout.row_order, given, b.layout.row_order, wanted);
      });
      if (rows == RelayoutRows::all)
        found.communicates = shape.size(pmm::group_axes) > 1; // also where nothing moves
      return found;
    };
    return Sizes{sizes(from, to), sizes(to, from)};
  };
  std::vector<Sizes> residuals(plan.layers.size());
  std::vector<Sizes> selves(plan.layers.size());
  for (auto const& layer : plan.layers) {
    auto const l = static_cast<std::size_t>(layer.index);
    if (layer.owners) continue;
    if (layer.is_residual) residuals[l] = between(layer.input, layer.output);
    if (layer.reads_itself()) selves[l] = between(layer.aggregated(), layer.aggregate());
  }
  auto const of_layer = [](std::vector<Sizes> sizes) {
    return [sizes = std::move(sizes)](NetworkLayerPlan const& layer, bool is_backward) {
      return sizes[static_cast<std::size_t>(layer.index)][is_backward ? 1 : 0];
    };
  };
  traits.residual_sizes = of_layer(std::move(residuals));
  traits.self_sizes = of_layer(std::move(selves));

  if (!plan.teleport || plan.layers.front().owners) return;
  std::vector<Sizes> starts; // [sites]
  for (auto const& site : plan.teleport->sites)
    starts.push_back(between(teleport_start(plan), site));
  traits.teleport_sizes = [starts](NetworkPlan const& of, pmm::Placement const& site, bool is_backward) {
    auto const& sites = of.teleport.value().sites;
    return starts.at(
        static_cast<std::size_t>(std::ranges::find(sites, site) - sites.begin()))[is_backward ? 1 : 0];
  };
}

bool has_relayouts(NetworkPlan const& plan) {
  return std::ranges::any_of(plan.layers, [](NetworkLayerPlan const& layer) {
    return (layer.is_residual || layer.reads_itself() || layer.teleport_site) && !layer.owners;
  });
}

} // namespace orthant::models
