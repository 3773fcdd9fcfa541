// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/plan/network_plan.hpp"

#include "models/gnn/operands/graph_operands.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace orthant::models {
namespace {

using pmm::Axis;
using pmm::Layout;
using pmm::Storage;

struct Roles {
  pmm::AxisSet a = Axis::x;
  pmm::AxisSet b = Axis::y;
  pmm::AxisSet c = Axis::z;
};

/// Placements of a layer in pmm3d whose input is F[a,b]. Updates `roles` to those of the next layer.
void place_on_planes(NetworkLayerPlan& layer, Roles& roles, std::int64_t n, std::int64_t in,
                     std::int64_t out) {
  auto const [a, b, c] = roles;
  auto const to = layer.is_even ? order_p1 : order_p2;
  auto const from = layer.is_even ? order_p2 : order_p1;
  auto const natural = pmm::natural_order;
  layer.input = {Layout{a, b, Storage::replicated, from, natural}, {n, in}};
  if (layer.kind == LayerKind::dense) {
    layer.weight = {Layout{b, c, Storage::flat_sharded, natural, natural}, {in, out}};
    layer.output = {Layout{a, c, Storage::replicated, from, natural}, {n, out}};
    layer.middle = layer.output;
    roles = {a, c, b};
  } else if (layer.kind == LayerKind::propagation) {
    layer.adjacency = {Layout{c, a, Storage::replicated, to, from}, {n, n}};
    layer.output = {Layout{c, b, Storage::replicated, to, natural}, {n, out}};
    layer.middle = layer.output;
    roles = {c, b, a};
  } else if (layer.aggregates_first) {
    layer.adjacency = {Layout{c, a, Storage::replicated, to, from}, {n, n}};
    layer.middle = {Layout{c, b, Storage::replicated, to, natural}, {n, in}};
    layer.weight = {Layout{b, a, Storage::flat_sharded, natural, natural}, {in, out}};
    layer.output = {Layout{c, a, Storage::replicated, to, natural}, {n, out}};
    roles = {c, a, b};
  } else {
    layer.weight = {Layout{b, c, Storage::flat_sharded, natural, natural}, {in, out}};
    layer.middle = {Layout{a, c, Storage::replicated, from, natural}, {n, out}};
    layer.adjacency = {Layout{b, a, Storage::replicated, to, from}, {n, n}};
    layer.output = {Layout{b, c, Storage::replicated, to, natural}, {n, out}};
    roles = {b, c, a};
  }
}

/// Placements of a layer in the schedule `rows`. The roles do not rotate.
void place_with_owners(NetworkLayerPlan& layer, OwnerRoles const& owners, std::int64_t n, std::int64_t in,
                       std::int64_t out) {
  Layout const whole_rows{pmm::group_axes, {}, Storage::replicated, order_p1, pmm::natural_order};
  layer.owners = owners;
  layer.adjacency = {Layout{owners.roles.c, owners.roles.a, Storage::replicated, order_p1, order_p1}, {n, n}};
  auto const transformed = layer.attention ? layer.attention->num_projected() : (1 + layer.num_powers) * out;
  if (layer.transforms()) layer.weight = {Layout{{}, {}}, {in, transformed}};
  layer.input = {whole_rows, {n, in}};
  layer.output = {whole_rows, {n, out}};
  layer.middle = {whole_rows, {n, layer.keeps_aggregate() || layer.relations ? in : transformed}};
}

/// Compares the columns aggregated in one epoch, forward and backward. pmm3d and rows both aggregate the input width in both
/// directions, or the output width.
bool aggregating_first_is_cheaper(NetworkShape const& shape, std::size_t layer) {
  auto const in = shape.widths[layer];
  auto const out = shape.widths[layer + 1];
  auto const reads_fixed_features = layer == 0 && !shape.projected_features && !shape.features_need_gradient;
  auto const forward = reads_fixed_features && !shape.has_input_dropout && !shape.drops_edges ? 0 : in;
  auto const backward = reads_fixed_features ? 0 : in;
  return forward + backward <= 2 * out;
}

/// Product of `input` and a weight with this storage. The weight's third axis is the axis of the rows.
LinearPlan plan_linear(pmm::Placement const& input, pmm::AxisSet output_axis, std::int64_t out,
                       Storage weight) {
  auto const natural = pmm::natural_order;
  auto const& layout = input.layout;
  auto const& extents = input.extents;
  return {input,
          {Layout{layout.columns, output_axis, weight, natural, natural}, {extents.columns, out}},
          {Layout{layout.rows, output_axis, Storage::replicated, layout.row_order, natural},
           {extents.rows, out}}};
}

/// Plans the teleport of all aggregating layers. H0 is the input of the first of them.
void place_teleport(NetworkPlan& plan) {
  TeleportPlan teleport;
  teleport.first_layer = plan.layers.size();
  for (std::size_t l = plan.layers.size(); l-- > 0;)
    if (plan.layers[l].aggregates()) teleport.first_layer = l;
  auto const l = teleport.first_layer;
  if (l > 0 && plan.layers[l - 1].is_activated) {
    teleport.drops_start = true;
    plan.layers[l - 1].drops_output = false;
  }
  plan.teleport = std::move(teleport);
  place_sites(plan);
}

/// Finds the hidden layers that the head reads besides the last layer. `third_axes`: [layers] axis of F_l W_l's columns.
void place_jump(NetworkPlan& plan, JumpKind kind, std::vector<pmm::AxisSet> const& third_axes,
                Storage weight) {
  JumpPlan jump{kind, {}, {}};
  for (std::size_t l = 0; l + 1 < plan.layers.size(); ++l) {
    if (!plan.layers[l].is_activated) continue;
    jump.layers.push_back(l);
    if (kind == JumpKind::cat)
      jump.maps.push_back(
          plan_linear(plan.layers[l].result(), third_axes[l], plan.head->output.extents.columns, weight));
  }
  plan.jump = std::move(jump);
}

/// Throws if this product overflows. Every count of elements and bytes that follows from the shape is smaller.
void require_countable(NetworkShape const& shape) {
  constexpr std::int64_t bytes_of_number = 64; // values, gradients, moments in fp64 and more
  constexpr std::string_view what = "vertices times the widths of all layers";
  auto sum = shape.projected_features.value_or(0) + shape.head_classes.value_or(0);
  auto widest = std::max(sum, shape.num_vertices);
  for (auto const width : shape.widths) {
    sum = runtime::checked_sum(sum, width, what);
    widest = std::max(widest, width);
  }
  std::ignore = runtime::checked_product(runtime::checked_product(widest, sum, what), bytes_of_number, what);
}

} // namespace

Schedule parse_schedule(std::string_view word) {
  if (word == "pmm3d") return Schedule::pmm3d;
  if (word == "rows") return Schedule::rows;
  runtime::throw_user("--schedule is pmm3d or rows, not '{}'", word);
}

std::string_view name_of(Schedule schedule) {
  return schedule == Schedule::pmm3d ? "pmm3d" : "rows";
}

JumpKind parse_jump(std::string_view word) {
  for (auto const kind : {JumpKind::none, JumpKind::cat, JumpKind::max, JumpKind::mean})
    if (word == name_of(kind)) return kind;
  runtime::throw_user("--jump is none, cat, max or mean, not '{}'", word);
}

std::string_view name_of(JumpKind kind) {
  constexpr std::array<std::string_view, 4> names{"none", "cat", "max", "mean"};
  return names[static_cast<std::size_t>(kind)];
}

std::optional<std::size_t> JumpPlan::number_of(std::size_t l) const {
  auto const found = std::ranges::find(layers, l);
  if (found == layers.end()) return std::nullopt;
  return static_cast<std::size_t>(found - layers.begin());
}

ProductOrder parse_product_order(std::string_view word) {
  if (word == "auto") return ProductOrder::automatic;
  if (word == "aggregate") return ProductOrder::aggregate_first;
  if (word == "transform") return ProductOrder::transform_first;
  runtime::throw_user("--order is auto, aggregate or transform, not '{}'", word);
}

bool is_activated(NetworkPlan const& plan, std::size_t l) {
  return plan.layers[l].is_activated;
}

bool needs_input_gradient(NetworkPlan const& plan, std::size_t l) {
  return l > 0 || plan.projection || plan.trained_features;
}

void train_features(NetworkPlan& plan) {
  auto& features = plan.features();
  auto shards = features;
  shards.layout.storage = Storage::flat_sharded;
  plan.trained_features = TrainedFeatures{shards};
  auto const& first = plan.layers.front();
  auto const is_in_products_only = plan.projection || !(first.reads_itself() || first.reads_edges() ||
                                                        first.relations || first.is_residual);
  if (!first.owners && is_in_products_only) features = shards;
}

bool reads_shards(pmm::GridShape const& shape, NetworkPlan const& plan) {
  if (!plan.trained_features || plan.trained_features->picks_rows) return false;
  auto const& layout = plan.features().layout;
  return layout.storage == Storage::flat_sharded || shape.size(layout.third()) == 1;
}

bool keeps_first_aggregate(NetworkPlan const& plan) {
  auto const& first = plan.layers.front();
  return first.aggregates_first && !first.relations && !needs_input_gradient(plan, 0) && !plan.drops_edges;
}

bool keeps_features(NetworkPlan const& plan) {
  auto const& first = plan.layers.front();
  return (first.has_self_weight && first.owners) || first.is_residual;
}

void place_sites(NetworkPlan& plan) {
  auto& sites = plan.teleport.value().sites;
  sites.clear();
  for (auto& layer : plan.layers) {
    if (!layer.aggregates()) continue;
    auto const known = std::ranges::find(sites, layer.aggregate());
    layer.teleport_site = static_cast<std::size_t>(known - sites.begin());
    if (known == sites.end()) sites.push_back(layer.aggregate());
  }
}

NetworkPlan with_num_vertices(NetworkPlan plan, std::int64_t num_vertices) {
  auto const resize = [&](pmm::Placement& placement) { placement.extents.rows = num_vertices; };
  for (auto* const linear : {&plan.projection, &plan.head}) {
    if (!*linear) continue;
    resize((*linear)->input);
    resize((*linear)->output);
  }
  for (auto& layer : plan.layers) {
    for (auto* const placement : {&layer.adjacency, &layer.input, &layer.middle, &layer.output})
      resize(*placement);
    for (auto* const linear : {&layer.second, &layer.residual_map})
      if (*linear)
        for (auto* const placement : {&(*linear)->input, &(*linear)->output})
          resize(*placement);
    layer.adjacency.extents.columns = num_vertices;
    layer.least_weighted_width = 0;
  }
  if (plan.teleport)
    for (auto& site : plan.teleport->sites)
      resize(site);
  if (plan.jump)
    for (auto& map : plan.jump->maps)
      for (auto* const placement : {&map.input, &map.output})
        resize(*placement);
  return plan;
}

NetworkPlan plan_of_batch(NetworkPlan const& plan, std::int64_t num_vertices) {
  auto of_batch = with_num_vertices(plan, num_vertices);
  if (of_batch.trained_features) {
    of_batch.trained_features->picks_rows = true;
    of_batch.features().layout.storage = Storage::replicated;
  }
  for (auto& layer : of_batch.layers)
    if (layer.owners)
      layer.owners->backward = pmm::Flow::transpose; // sampled blocks are stored with their transposes
  return of_batch;
}

NetworkPlan plan_network(NetworkShape const& shape, ProductOrder order) {
  ORTHANT_REQUIRE(shape.widths.size() >= 2, "a GCN needs a layer");
  ORTHANT_REQUIRE((!shape.attention && shape.num_powers == 0 && shape.relations.num_heads == 0) ||
                      shape.schedule == Schedule::rows,
                  "attention and powers of A^ are between owners of vertices");
  ORTHANT_REQUIRE((!shape.takes_maximum && !shape.own) || order != ProductOrder::transform_first,
                  "a maximum comes first");
  ORTHANT_REQUIRE(!(shape.has_perceptrons || shape.relations.num_heads > 0) || shape.head_classes,
                  "the last layer ends with a head");
  auto const jumps = shape.jump != JumpKind::none;
  ORTHANT_REQUIRE(!jumps || shape.head_classes, "a head reads what jumps");
  require_countable(shape);
  NetworkPlan plan;
  plan.drops_edges = shape.drops_edges;
  auto const has_owners = shape.schedule == Schedule::rows;
  OwnerRoles const owners{
      {}, shape.is_symmetric ? pmm::Flow::forward : pmm::Flow::transpose, shape.hidden_axes};
  // Owners have whole rows, partitioned over all three axes.
  auto const first = has_owners ? Roles{pmm::group_axes, {}, {}} : Roles{};
  auto const weight = has_owners ? Storage::replicated : Storage::flat_sharded;
  auto roles = first;
  std::int64_t num_aggregations = 0;
  std::vector<pmm::AxisSet> third_axes; // [layers] after each layer
  auto const num_layers = shape.widths.size() - 1;
  for (std::size_t l = 0; l + 1 < shape.widths.size(); ++l) {
    auto const n = shape.num_vertices;
    auto const in = shape.widths[l];
    auto const out = shape.widths[l + 1];
    auto const is_sparse = l == 0 && shape.has_sparse_features && !shape.projected_features;

    NetworkLayerPlan layer;
    layer.index = static_cast<std::int64_t>(l);
    if (!shape.kinds.empty()) layer.kind = shape.kinds[l];
    layer.is_even = has_owners || num_aggregations % 2 == 0;
    if (layer.aggregates()) ++num_aggregations;
    // epsilon needs a gradient even if the features have none. If U is computed first, one gradient serves both.
    auto const must_transform = is_sparse || (l == 0 && shape.has_self_scales && !shape.projected_features &&
                                              !shape.features_need_gradient);
    auto const is_propagated = layer.kind == LayerKind::propagation || shape.has_teleport;
    layer.aggregates_first = layer.aggregates() && !must_transform && !shape.attention &&
                             shape.num_powers == 0 &&
                             (is_propagated || shape.takes_maximum || shape.own ||
                              shape.relations.num_relations > 0 || order == ProductOrder::aggregate_first ||
                              (order == ProductOrder::automatic && aggregating_first_is_cheaper(shape, l)));
    auto const reads_features = l == 0 && !shape.projected_features;
    auto const is_last = l + 2 == shape.widths.size();
    auto const gives_logits = is_last && !shape.head_classes;
    layer.takes_maximum = shape.takes_maximum;
    layer.num_powers = shape.num_powers;
    layer.own = shape.own;
    layer.has_self_weight = shape.has_self_weights;
    layer.has_self_scale = shape.has_self_scales;
    layer.drops_output = !shape.has_perceptrons;
    layer.makes_logits = gives_logits;
    // A dense layer ahead of propagations is not a hidden layer: no activation, and its bias is added last.
    auto const is_propagated_on =
        l + 1 < num_layers && !shape.kinds.empty() && shape.kinds[l + 1] == LayerKind::propagation;
    // R-GAT ends with two linear maps, the layer and the head, as the reference model of MLPerf.
    auto const ends_linear = is_last && shape.relations.num_heads > 0;
    layer.is_activated = !gives_logits && layer.transforms() && !is_propagated_on && !ends_linear;
    layer.adds_bias =
        layer.transforms() ? shape.has_teleport || !is_propagated_on : is_last && !shape.has_teleport;
    // The head is the second layer of the last perceptron, so this has no residual, unless the head reads the results of all perceptrons.
    auto const ends_with_head = shape.has_perceptrons && is_last && !jumps;
    auto const can_be_residual = shape.has_residuals && layer.is_activated && !ends_with_head;
    layer.is_residual = can_be_residual && (shape.projects_residuals || (in == out && !reads_features));
    if (shape.theta && layer.kind == LayerKind::convolution) {
      layer.map_share = std::log(*shape.theta / static_cast<double>(num_aggregations) + 1);
      layer.adds_bias = false;
    }
    if (shape.attention) layer.attention = attention_of(*shape.attention, out, gives_logits);
    if (shape.relations.num_relations > 0) {
      layer.relations = plan_relations(shape.relations, in, out, weight);
      if (layer.relations->has_own_biases()) layer.has_self_weight = layer.adds_bias = false;
    }
    auto const third_axis = roles.c;
    if (has_owners)
      place_with_owners(layer, owners, n, in, out);
    else
      place_on_planes(layer, roles, n, in, out);
    // V[a,c] := sum_b F[a,b] W_r[b,c]
    if (layer.is_residual && (in != out || reads_features))
      layer.residual_map = plan_linear(layer.input, third_axis, out, weight);
    if (shape.has_perceptrons && !ends_with_head) {
      // C[a,c] := sum_b D[a,b] W''[b,c]
      layer.second = plan_linear(layer.output, roles.c, out, weight);
      std::swap(roles.b, roles.c);
    }
    plan.layers.push_back(layer);
    third_axes.push_back(roles.c);
  }
  if (shape.projected_features) {
    // F_0[a,b] := sum_c X[a,c] W_in[c,b]
    auto features = plan.layers.front().input;
    features.layout.columns = first.c;
    features.extents.columns = *shape.projected_features;
    plan.projection = plan_linear(features, first.b, shape.widths.front(), weight);
  }
  // logits[a,c] := sum_b F_L[a,b] W_out[b,c]
  if (shape.head_classes) {
    plan.head = plan_linear(plan.layers.back().result(), roles.c, *shape.head_classes, weight);
    plan.head->makes_logits = true;
  }
  if (shape.has_teleport) place_teleport(plan);
  if (jumps) place_jump(plan, shape.jump, third_axes, weight);
  return plan;
}

} // namespace orthant::models
