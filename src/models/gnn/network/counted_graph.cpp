// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/network/counted_graph.hpp"

#include "models/gnn/operands/graph_operands.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace orthant::models {
namespace {

constexpr int num_bands = 240; // as many as bands of rows of the stored tiles

/// Position in order p1 of each column of the even matrix.
std::vector<std::int64_t> columns_in_p1(graph::GraphStore const& store) {
  auto const n = store.facts().num_vertices;
  if (store.facts().has_two_orders()) return store.read_other_positions(graph::Order::p2, {0, n});
  std::vector<std::int64_t> same(static_cast<std::size_t>(n));
  std::iota(same.begin(), same.end(), std::int64_t{0});
  return same;
}

NeededOfGrid count_needed(graph::GraphStore const& store, pmm::GridShape const& shape,
                          pmm::Roles const& roles, pmm::Gather gather) {
  auto const n = store.facts().num_vertices;
  auto const columns = columns_in_p1(store);
  std::vector<std::int64_t> positions(columns.size());
  std::iota(positions.begin(), positions.end(), std::int64_t{0});
  TouchedRows touched(shape, roles, n, positions);
  for (int band = 0; band < num_bands; ++band) {
    auto const rows = runtime::balanced_range(n, num_bands, band);
    if (rows.size() == 0) continue;
    auto const block = store.read_block(graph::Parity::even, rows, {0, n});
    for (std::size_t row = 0; row + 1 < block.row_offsets.size(); ++row)
      for (auto k = block.row_offsets[row]; k < block.row_offsets[row + 1]; ++k)
        touched.meet(static_cast<std::size_t>(rows.begin) + row,
                     static_cast<std::size_t>(
                         columns[static_cast<std::size_t>(block.columns[static_cast<std::size_t>(k)])]));
  }
  return touched.needed(gather);
}

bool is_alone(pmm::GridShape const& shape) {
  return shape.size(pmm::group_axes) == 1;
}

/// Whether the softmax of attention within relations sends numbers for each pair of a row and a relation, whose count is estimated.
bool sends_pairs(pmm::GridShape const& shape, NetworkPlan const& plan) {
  auto const& first = plan.layers.front();
  return first.relations && first.relations->attention && shape.size(first.owners.value().roles.a) > 1;
}

} // namespace

Exactness parse_exactness(std::string_view word) {
  for (auto const exactness : {Exactness::exact, Exactness::at_most, Exactness::about})
    if (word == name_of(exactness)) return exactness;
  runtime::throw_user("bytes are exact, at most or about, not '{}'", word);
}

std::string_view name_of(Exactness exactness) {
  return exactness == Exactness::exact ? "exact" : exactness == Exactness::at_most ? "at most" : "about";
}

Exactness exactness_without_counts(pmm::GridShape const& shape, NetworkPlan const& plan,
                                   NetworkSettings const& settings) {
  if (is_alone(shape)) return Exactness::exact;
  if (predicts_links(settings) || has_relayouts(plan)) return Exactness::about;
  auto const& first = plan.layers.front();
  if (sends_pairs(shape, plan)) return Exactness::about;
  auto const is_between_owners = first.owners && !first.relations; // with relations all rows move
  return is_between_owners && settings.gather != pmm::Gather::all ? Exactness::at_most : Exactness::exact;
}

CountedGraph::CountedGraph(graph::GraphStore const& store, pmm::GridShape const& shape,
                           NetworkPlan const& plan, NetworkSettings const& settings)
    : store_(store),
      shape_(shape),
      plan_(plan),
      settings_(settings) {
  if (is_alone(shape)) return;
  auto const& owners = plan.layers.front().owners;
  if (owners && !plan.layers.front().relations && settings.gather != pmm::Gather::all)
    needed_ = count_needed(store, shape, owners->roles, settings.gather);
  if (!has_relayouts(plan)) return;
  auto const n = store.facts().num_vertices;
  std::vector<std::int64_t> in_p1(static_cast<std::size_t>(n));
  std::iota(in_p1.begin(), in_p1.end(), std::int64_t{0});
  auto in_p2 = store.facts().has_two_orders() ? store.read_other_positions(graph::Order::p1, {0, n}) : in_p1;
  orders_ = {std::move(in_p1), std::move(in_p2)};
}

NetworkEpochTraits CountedGraph::traits_of(pmm::Coordinates const& coordinates) const {
  auto traits = models::traits_of(store_.facts(), shape_, coordinates, plan_, settings_);
  if (auto const& owners = plan_.layers.front().owners)
    traits.needed = needed_.of(coordinates, owners->roles);
  if (orders_.size() > 0)
    set_counted_relayouts(traits, shape_, coordinates, plan_, orders_, RelayoutRows::all);
  return traits;
}

Exactness CountedGraph::exactness() const {
  auto const is_estimated = predicts_links(settings_) || sends_pairs(shape_, plan_);
  return is_estimated && !is_alone(shape_) ? Exactness::about : Exactness::exact;
}

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
        found.communicates = shape.size(pmm::group_axes) > 1; // also if no row moves
      return found;
    };
    return Sizes{sizes(from, to), sizes(to, from)};
  };
  std::vector<Sizes> residuals(plan.layers.size());
  std::vector<Sizes> selves(plan.layers.size());
  for (auto const& layer : plan.layers) {
    auto const l = static_cast<std::size_t>(layer.index);
    if (layer.owners) continue;
    if (layer.is_residual) residuals[l] = between(layer.residual_source(), layer.result());
    if (layer.reads_itself()) selves[l] = between(layer.aggregated(), layer.aggregate());
  }
  auto const of_layer = [](std::vector<Sizes> sizes) {
    return [sizes = std::move(sizes)](NetworkLayerPlan const& layer, bool is_backward) {
      return sizes[static_cast<std::size_t>(layer.index)][is_backward ? 1 : 0];
    };
  };
  traits.residual_sizes = of_layer(std::move(residuals));
  traits.self_sizes = of_layer(std::move(selves));

  if (plan.jump && !plan.layers.front().owners) {
    std::vector<Sizes> jumps; // [layers of the jump]
    for (std::size_t k = 0; k < plan.jump->layers.size(); ++k)
      jumps.push_back(between(plan.jump_source(k), plan.jump_target()));
    traits.jump_sizes = [jumps](NetworkPlan const&, std::size_t k, bool is_backward) {
      return jumps.at(k)[is_backward ? 1 : 0];
    };
  }
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
  return std::ranges::any_of(plan.layers, [&](NetworkLayerPlan const& layer) {
    return (layer.is_residual || layer.reads_itself() || layer.teleport_site || plan.jump) && !layer.owners;
  });
}

namespace {

/// Numbers of rows by block and slab along one axis, for each coordinate along the other axis of the blocks.
class SlabCounts {
 public:
  SlabCounts(int num_outer, int num_ranks)
      : num_ranks_(num_ranks),
        counts_(static_cast<std::size_t>(num_outer) * static_cast<std::size_t>(num_ranks) *
                static_cast<std::size_t>(num_ranks)) {}

  [[nodiscard]] std::int64_t& at(int outer, int block, int slab) {
    return counts_[static_cast<std::size_t>((outer * num_ranks_ + block) * num_ranks_ + slab)];
  }
  /// Sum over all pairs in which the slab belongs to another rank than the block.
  [[nodiscard]] std::int64_t of_others() const {
    auto sum = std::int64_t{0};
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      auto const place = static_cast<int>(i);
      if (place / num_ranks_ % num_ranks_ != place % num_ranks_) sum += counts_[i];
    }
    return sum;
  }

 private:
  int num_ranks_;
  std::vector<std::int64_t> counts_;
};

/// Where each vertex lies: its slab along an axis, and its coordinate along the other axis of the blocks.
struct VertexPlaces {
  std::vector<int> const& outer; // [n]
  std::vector<int> const& slab;  // [n]
  int num_outer = 1;
  int num_ranks = 1; // of the axis
};

/// `meets`: [n x num_ranks] whether the block at a coordinate has an entry of the vertex.
NeededOfGrid::Counts count_touched(VertexPlaces const& places, std::vector<bool> const& meets,
                                   pmm::Gather gather) {
  auto const num_ranks = places.num_ranks;
  SlabCounts touched(places.num_outer, num_ranks);
  SlabCounts all(places.num_outer, num_ranks);
  for (std::size_t i = 0; i < places.slab.size(); ++i)
    for (int block = 0; block < num_ranks; ++block) {
      ++all.at(places.outer[i], block, places.slab[i]);
      if (meets[i * static_cast<std::size_t>(num_ranks) + static_cast<std::size_t>(block)])
        ++touched.at(places.outer[i], block, places.slab[i]);
    }
  NeededOfGrid::Counts table(
      static_cast<std::size_t>(places.num_outer),
      std::vector<std::optional<pmm::NeededCounts>>(static_cast<std::size_t>(num_ranks)));
  auto const num_others = all.of_others();
  auto const coverage =
      num_others == 0 ? 1 : static_cast<double>(touched.of_others()) / static_cast<double>(num_others);
  if (num_others == 0 || (gather == pmm::Gather::automatic && coverage >= pmm::most_coverage)) return table;
  for (int outer = 0; outer < places.num_outer; ++outer)
    for (int own = 0; own < num_ranks; ++own) {
      pmm::NeededCounts counts;
      for (int other = 0; other < num_ranks; ++other) {
        counts.touched.push_back(touched.at(outer, own, other));
        counts.asked.push_back(touched.at(outer, other, own));
      }
      table[static_cast<std::size_t>(outer)][static_cast<std::size_t>(own)] = std::move(counts);
    }
  return table;
}

} // namespace

pmm::NeededCountsOfAxes NeededOfGrid::of(pmm::Coordinates const& coordinates, pmm::Roles const& roles) const {
  if (over_c.empty()) return {};
  auto const a = static_cast<std::size_t>(coordinates.along(roles.a));
  auto const c = static_cast<std::size_t>(coordinates.along(roles.c));
  return {over_c[a][c], over_a[c][a]};
}

TouchedRows::TouchedRows(pmm::GridShape const& shape, pmm::Roles const& roles, std::int64_t num_vertices,
                         std::span<std::int64_t const> positions)
    : num_a_(static_cast<std::size_t>(shape.size(roles.a))),
      num_c_(static_cast<std::size_t>(shape.size(roles.c))),
      meets_c_(positions.size() * num_c_),
      meets_a_(positions.size() * num_a_) {
  outer_.reserve(positions.size());
  slab_.reserve(positions.size());
  for (auto const position : positions) {
    auto const cell = pmm::part_holding(shape, pmm::group_axes, num_vertices, position);
    auto const owner = pmm::member_of(shape, {}, pmm::group_axes, cell);
    outer_.push_back(owner.along(roles.a));
    slab_.push_back(owner.along(roles.c));
  }
}

NeededOfGrid TouchedRows::needed(pmm::Gather gather) const {
  auto const num_a = static_cast<int>(num_a_);
  auto const num_c = static_cast<int>(num_c_);
  return {count_touched({outer_, slab_, num_a, num_c}, meets_c_, gather),
          count_touched({slab_, outer_, num_c, num_a}, meets_a_, gather)};
}

} // namespace orthant::models
