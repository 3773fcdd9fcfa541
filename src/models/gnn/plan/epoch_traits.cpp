// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/plan/epoch_traits.hpp"

#include "models/gnn/operands/owned_adjacency.hpp"
#include "models/training/vertex_loss.hpp"
#include "pmm/neighbors/edge_dropout.hpp"
#include "runtime/range.hpp"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

namespace orthant::models {

std::int64_t even_share(std::int64_t count, pmm::GridShape const& shape, pmm::Layout const& layout) {
  auto const blocks = std::int64_t{shape.size(layout.rows)} * shape.size(layout.columns);
  return (count + blocks - 1) / blocks;
}

graph::StoreFacts facts_of_batch(graph::StoreFacts facts, std::int64_t num_vertices) {
  num_vertices = std::min(num_vertices, facts.num_vertices);
  auto const share = static_cast<double>(num_vertices) / static_cast<double>(facts.num_vertices);
  auto const part = [](std::int64_t count, double of_it) {
    return static_cast<std::int64_t>(static_cast<double>(count) * of_it);
  };
  auto const num_loops = part(facts.num_self_loops, share);
  facts.num_vertices = num_vertices;
  facts.num_entries = num_loops + part(facts.num_entries - facts.num_self_loops, share * share);
  facts.num_self_loops = num_loops;
  facts.num_feature_entries = part(facts.num_feature_entries, share);
  for (auto& count : facts.relation_entries)
    count = part(count, share * share);
  for (auto& type : facts.vertex_types)
    type.count = part(type.count, share);
  return facts;
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
    traits.num_dropped_ways = first.reads_edges() ? 1 : num_dropped_blocks(facts);
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
  traits.loss = loss_kind_of(facts, settings.trains_entries);
  if (plan.drops_edges) set_dropped(traits, facts, shape, coordinates, plan);
  if (predicts_links(settings))
    traits.links = mean_link_counts(shape, facts, link_plan_of(shape, coordinates, plan, settings));
  traits.num_nonzeros = [=, in_features = facts.num_feature_entries,
                         in_adjacency = facts.num_operator_entries(),
                         features = plan.features()](pmm::Placement const& placement) {
    return even_share(placement == features ? in_features : in_adjacency, shape, placement.layout);
  };
  // Assumes that the entries of each relation are spread evenly over blocks, and have different rows while there are enough rows.
  traits.num_pairs = [=, relation_entries = facts.relation_entries](pmm::Placement const& placement) {
    auto const num_rows = block_of(shape, coordinates, placement).rows.size();
    auto num_pairs = std::int64_t{0};
    for (auto const count : relation_entries)
      num_pairs += std::min(num_rows, even_share(count, shape, placement.layout));
    return num_pairs;
  };
  traits.num_relation_edges = [=,
                               relation_entries = facts.relation_entries](pmm::Placement const& placement) {
    auto const block = block_of(shape, coordinates, placement);
    auto const of_rows = pmm::Layout{placement.layout.rows, {}};
    pmm::RelationEdgeCounts counts;
    for (auto const count : relation_entries) {
      auto const share = even_share(count, shape, placement.layout);
      counts.edges += share;
      counts.sources += std::min(block.columns.size(), share);
      counts.targets += std::min(block.rows.size(), even_share(count, shape, of_rows));
    }
    return counts;
  };
  NetworkEpochTraits::SelfPairs all; // over all ranks
  if (auto const& relations = plan.layers.front().relations) {
    for (auto const type : relations->root_types)
      all.root_pairs += facts.ids_of_type(type).size();
    for (auto const type : std::set(relations->root_types.begin(), relations->root_types.end()))
      all.self_pairs += facts.ids_of_type(type).size();
  }
  traits.num_self_pairs = [=](pmm::Placement const& placement) {
    return NetworkEpochTraits::SelfPairs{even_share(all.self_pairs, shape, placement.layout),
                                         even_share(all.root_pairs, shape, placement.layout)};
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
    return sizes_between(layer.residual_source(), layer.result(), is_backward);
  };
  traits.self_sizes = [=](NetworkLayerPlan const& layer, bool is_backward) {
    return sizes_between(layer.aggregated(), layer.aggregate(), is_backward);
  };
  traits.teleport_sizes = [=](NetworkPlan const& of, pmm::Placement const& site, bool is_backward) {
    return sizes_between(teleport_start(of), site, is_backward);
  };
  traits.jump_sizes = [=](NetworkPlan const& of, std::size_t k, bool is_backward) {
    return sizes_between(of.jump_source(k), of.jump_target(), is_backward);
  };
  return traits;
}

std::optional<std::int64_t> NetworkEpochTraits::num_own_features(pmm::StepPlan const& step,
                                                                 NetworkPlan const& plan) const {
  if (!plan.trained_features || reads_shards(step.shape(), plan)) return std::nullopt;
  if (own_features) return own_features;
  auto const& shards = plan.trained_features->shards;
  if (!plan.trained_features->picks_rows) return step.block(shards).num_stored;
  auto const third = shards.layout.third();
  return runtime::balanced_range(step.block(plan.features()).size(), step.shape().size(third),
                                 rank_within(step.shape(), step.coordinates(), third))
      .size();
}

void plan_dropped_edges(pmm::StepPlan& step, NetworkPlan const& plan, NetworkEpochTraits const& traits,
                        bool draws) {
  auto const drop = [&](std::int64_t num_nonzeros, int num_ways) {
    for (int way = 0; way < num_ways; ++way)
      pmm::plan_drop_entries(step, num_nonzeros, traits.weighs_edges, draws);
  };
  for (auto const& block : traits.dropped)
    drop(traits.num_nonzeros(block), traits.num_dropped_ways);
  if (!plan.drops_edges) return;
  for (auto const& layer : plan.layers)
    if (layer.owners && layer.owners->kept && !layer.owners->kept->is_shared)
      drop(layer.owners->kept->num_nonzeros, layer.reads_edges() ? 1 : 2);
}

namespace {

using RangesOf = std::function<std::vector<pmm::Range>(pmm::Coordinates const&)>;

/// For each position, the coordinate of the rank whose range contains it.
std::vector<std::int32_t> parts_of_positions(std::int64_t num_positions, pmm::GridShape const& shape,
                                             pmm::Axis axis, RangesOf const& ranges_of) {
  std::vector<std::int32_t> parts(static_cast<std::size_t>(num_positions));
  pmm::Coordinates coordinates;
  for (int place = 0; place < shape.size(axis); ++place) {
    coordinates.along(axis) = place;
    for (auto const& range : ranges_of(coordinates))
      std::fill(parts.begin() + range.begin, parts.begin() + range.end, place);
  }
  return parts;
}

/// The only axis of a set: a block of A^ is split over one axis in each direction.
pmm::Axis axis_of(pmm::AxisSet axes) {
  for (auto const axis : pmm::spatial_axes)
    if (axes == pmm::AxisSet{axis}) return axis;
  runtime::throw_internal("a block of A^ is split over one axis in each direction",
                          std::source_location::current());
}

} // namespace

BlockCounts::BlockCounts(pmm::GridShape const& shape, NetworkLayerPlan const& layer)
    : shape_(shape),
      adjacency_(layer.adjacency),
      parity_(layer.is_even ? graph::Parity::even : graph::Parity::odd),
      row_axes_(layer.owners ? pmm::AxisSet{layer.owners->roles.c} : layer.adjacency.layout.rows),
      column_axes_(layer.owners ? pmm::AxisSet{layer.owners->roles.a} : layer.adjacency.layout.columns) {
  auto const n = layer.adjacency.extents.rows;
  auto const of_rows = [&](pmm::Coordinates const& at) {
    if (layer.owners) return pmm::block_rows(shape, at, layer.owners->roles, n);
    return std::vector{pmm::block_of(shape, at, layer.adjacency).rows};
  };
  auto const of_columns = [&](pmm::Coordinates const& at) {
    if (layer.owners) return pmm::block_columns(shape, at, layer.owners->roles, n);
    return std::vector{pmm::block_of(shape, at, layer.adjacency).columns};
  };
  row_parts_ = parts_of_positions(n, shape, axis_of(row_axes_), of_rows);
  column_parts_ = parts_of_positions(n, shape, axis_of(column_axes_), of_columns);
  counts_.resize(static_cast<std::size_t>(shape.size(row_axes_)) *
                 static_cast<std::size_t>(shape.size(column_axes_)));
}

void BlockCounts::add(graph::CsrBlock const& rows) {
  auto const width = static_cast<std::size_t>(shape_.size(column_axes_));
  for (std::int64_t row = 0; row < rows.rows.size(); ++row) {
    auto const part = static_cast<std::size_t>(row_parts_[static_cast<std::size_t>(rows.rows.begin + row)]);
    auto* const counts = counts_.data() + part * width;
    for (auto k = rows.row_offsets[static_cast<std::size_t>(row)];
         k < rows.row_offsets[static_cast<std::size_t>(row) + 1]; ++k)
      ++counts[column_parts_[static_cast<std::size_t>(rows.columns[static_cast<std::size_t>(k)])]];
  }
}

std::int64_t BlockCounts::of(pmm::Coordinates const& coordinates) const {
  auto const row = static_cast<std::size_t>(coordinates.along(axis_of(row_axes_)));
  auto const column = static_cast<std::size_t>(coordinates.along(axis_of(column_axes_)));
  return counts_[row * static_cast<std::size_t>(shape_.size(column_axes_)) + column];
}

std::vector<BlockCounts> count_blocks(graph::GraphStore const& store, pmm::GridShape const& shape,
                                      NetworkPlan const& plan) {
  std::vector<BlockCounts> all;
  for (auto const& layer : plan.layers)
    if (layer.aggregates() &&
        std::ranges::none_of(all, [&](BlockCounts const& counts) { return counts.are_of(layer.adjacency); }))
      all.emplace_back(shape, layer);
  constexpr int num_bands = 240; // as many as bands of rows of the stored tiles
  auto const n = store.facts().num_vertices;
  for (auto const parity : {graph::Parity::even, graph::Parity::odd}) {
    if (std::ranges::none_of(all, [&](BlockCounts const& counts) { return counts.parity() == parity; }))
      continue;
    for (int band = 0; band < num_bands; ++band) {
      auto const rows = runtime::balanced_range(n, num_bands, band);
      if (rows.size() == 0) continue;
      auto const block = store.read_block(parity, rows, {0, n});
      for (auto& counts : all)
        if (counts.parity() == parity) counts.add(block);
    }
  }
  return all;
}

std::vector<pmm::Placement> sampled_blocks(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                           graph::StoreFacts const& facts, NetworkPlan const& plan,
                                           bool shares_transposes) {
  using Part = std::pair<int, int>; // number of parts, and this rank's part
  std::set<std::tuple<bool, Part, Part>> known;
  std::vector<pmm::Placement> blocks;
  auto const part = [&](pmm::AxisSet axes) {
    return Part(shape.size(axes), rank_within(shape, coordinates, axes));
  };
  for (auto const& layer : plan.layers) {
    if (!layer.aggregates()) continue;
    auto const is_even = !facts.has_two_orders() || layer.is_even;
    auto const is_transpose_even = !facts.has_two_orders() || !layer.is_even;
    auto const rows = part(layer.adjacency.layout.rows), columns = part(layer.adjacency.layout.columns);
    if (shares_transposes && known.contains({is_transpose_even, columns, rows})) continue;
    if (known.insert({is_even, rows, columns}).second) blocks.push_back(layer.adjacency);
  }
  return blocks;
}

} // namespace orthant::models
