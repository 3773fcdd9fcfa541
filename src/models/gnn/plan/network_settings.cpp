// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/plan/network_settings.hpp"

#include "pmm/kernels/host_parts.hpp"

#include <algorithm>
#include <functional>

namespace orthant::models {

void set_model(NetworkSettings& settings, Model model, Aggregator aggregator) {
  settings.model = model;
  settings.aggregator = aggregator;
  auto const traits = traits_of(model, aggregator);
  if (traits.always_has_head()) settings.has_head = true;
  if (traits.needs_owners()) settings.schedule = Schedule::rows;
  auto const& of_model = traits.graph_operator;
  if (!of_model) return;
  if (settings.normalization || settings.self_loops)
    runtime::throw_user(
        "--model {} multiplies by an operator of its own: leave out --normalize and --self-loops",
        name_of(model));
  settings.normalization = of_model->normalization;
  settings.self_loops = of_model->self_loops;
}

bool weighs_neighbours(NetworkSettings const& settings) {
  return traits_of(settings.model, settings.aggregator).attention.has_value();
}

bool reads_edges(NetworkSettings const& settings) {
  return weighs_neighbours(settings) || traits_of(settings.model, settings.aggregator).takes_maximum;
}

bool needs_edge_ids(NetworkSettings const& settings) {
  return settings.attention_dropout > 0 || settings.edge_dropout > 0 ||
         traits_of(settings.model, settings.aggregator).takes_maximum;
}

void choose_operator(NetworkSettings& settings, std::string_view normalize, std::string_view self_loops) {
  if (normalize != "auto") settings.normalization = graph::parse_normalization(normalize);
  if (self_loops != "auto") settings.self_loops = graph::parse_self_loops(self_loops);
}

namespace {

std::int64_t target_type_of(graph::StoreFacts const& facts, std::int64_t relation) {
  return facts.num_types() > 0 ? facts.relation_ends[static_cast<std::size_t>(relation)].target : 0;
}

/// The type of each root (RelationShape): a root for each relation, of the type of its targets, or one for each type; none if all vertices
/// share a weight.
std::vector<std::int64_t> root_types_of(graph::StoreFacts const& facts, ModelTraits const& traits) {
  std::vector<std::int64_t> types;
  if (traits.has_relation_attention) return types;
  if (traits.has_relation_roots)
    for (std::int64_t r = 0; r < facts.num_relations(); ++r)
      types.push_back(target_type_of(facts, r));
  else if (facts.num_types() > 1)
    for (std::int64_t t = 0; t < facts.num_types(); ++t)
      types.push_back(t);
  return types;
}

/// Features of edges that the network reads of a graph with `stored` ones.
std::int64_t num_edge_features_of(NetworkSettings const& settings, std::int64_t stored) {
  auto const kind = traits_of(settings.model, settings.aggregator).attention;
  auto const may_read = kind && *kind != AttentionKind::transformer;
  return may_read ? settings.num_edge_features.value_or(stored) : 0;
}

void use_edge_features(graph::GraphStore& store, NetworkSettings& settings) {
  auto const stored = store.facts().num_edge_features;
  settings.num_edge_features = num_edge_features_of(settings, stored);
  if (*settings.num_edge_features == 0) return store.ignore_edge_features();
  if (*settings.num_edge_features != stored)
    runtime::throw_user("the network reads {} features of edges, and the edges of {} have {}",
                        *settings.num_edge_features, store.name(),
                        stored == 0 ? "none (partition --edge-features keep)" : std::to_string(stored));
}

} // namespace

void use_operator(graph::GraphStore& store, NetworkSettings& settings) {
  auto const stored = store.facts().graph_operator();
  auto const normalization = settings.normalization.value_or(stored.normalization);
  auto const otherwise = settings.normalization ? graph::usual_self_loops(normalization) : stored.self_loops;
  auto const self_loops = settings.self_loops.value_or(otherwise);
  store.set_operator({normalization, self_loops});
  // Layers that read edges ignore weights, as in PyG; sparse features are read as dense ones by a maximum or a registered convolution,
  // whose results are dense.
  auto const traits = traits_of(settings.model, settings.aggregator);
  if (reads_edges(settings)) store.ignore_weights();
  use_edge_features(store, settings);
  if ((traits.takes_maximum || traits.own || traits.has_relations) && settings.projected_width == 0)
    store.make_features_dense();
  settings.normalization = normalization;
  settings.self_loops = self_loops;
  auto const& facts = store.facts();
  settings.num_roots = traits.has_relation_attention ? facts.num_relations()
                       : traits.has_relations        ? std::ssize(root_types_of(facts, traits))
                                                     : 0;
  if (!facts.has_bare_types() || settings.trains_features) return;
  settings.trains_features = true;
  settings.num_fixed_rows = 0;
  for (auto const& type : facts.vertex_types)
    if (type.num_features > 0) *settings.num_fixed_rows += type.count;
}

bool is_normalised(NetworkPlan const& plan, NetworkSettings const& settings, std::size_t l) {
  return settings.norm != Norm::none && is_activated(plan, l);
}

bool shares_outputs(NetworkPlan const& plan, NetworkSettings const& settings) {
  // The loss of links reads the outputs while it writes their gradient.
  if (!pmm::runs_on_host || settings.keeps_outputs || predicts_links(settings)) return false;
  if (settings.norm != Norm::none || settings.activation != Activation::relu) return false;
  if (plan.projection || plan.head || plan.teleport) return false;
  // Both gradients of a single layer would share memory.
  if (plan.layers.size() == 1 && settings.trains_features && settings.operand_format != runtime::Wire::native)
    return false;
  return std::ranges::all_of(plan.layers, [](NetworkLayerPlan const& layer) {
    if (layer.num_powers > 0 || layer.own || layer.relations) return false; // they keep the operand of A^
    return layer.owners && layer.owners->hidden_axes == pmm::AxisSet() &&
           layer.kind == LayerKind::convolution && !layer.is_residual && !layer.reads_itself() &&
           !layer.map_share && !layer.second && !layer.reads_edges();
  });
}

std::size_t layer_of_output(NetworkPlan const& plan, std::size_t l) {
  while (l + 2 < plan.layers.size() && plan.layers[l + 1].aggregates_first)
    ++l;
  return l;
}

ActivationParts activation_of(NetworkPlan const& plan, NetworkSettings const& settings, std::size_t l) {
  return {is_normalised(plan, settings, l) ? settings.norm : Norm::none,
          is_activated(plan, l) ? settings.activation : Activation::relu,
          is_activated(plan, l) && shares_outputs(plan, settings)};
}

ActivationParts activation_of_second(NetworkSettings const& settings) {
  return {.activation = settings.activation};
}

namespace {

/// Kinds of layers: K propagations after dense layers, or a dense layer before convolutions with identity maps.
void set_kinds(NetworkShape& shape, ModelTraits const& traits, NetworkSettings const& settings) {
  if (!traits.begins_dense()) return;
  shape.has_teleport = traits.has_teleport;
  if (traits.has_identity_maps) {
    shape.theta = settings.theta;
    shape.widths.insert(shape.widths.begin() + 1, settings.hidden_widths.front());
    shape.kinds.assign(shape.widths.size() - 1, LayerKind::convolution);
    shape.kinds.front() = LayerKind::dense;
    return;
  }
  auto const num_propagations = static_cast<std::size_t>(settings.num_propagations);
  shape.kinds.assign(shape.widths.size() - 1, LayerKind::dense);
  shape.kinds.insert(shape.kinds.end(), num_propagations, LayerKind::propagation);
  shape.widths.insert(shape.widths.end(), num_propagations, shape.widths.back());
}

} // namespace

NetworkShape shape_of(graph::StoreFacts const& facts, NetworkSettings const& settings) {
  ORTHANT_REQUIRE(settings.num_layers() > 0, "a GCN needs a layer");
  NetworkShape shape;
  shape.num_vertices = facts.num_vertices;
  auto const has_projection = settings.projected_width > 0;
  if (has_projection) shape.projected_features = facts.num_features;
  shape.widths = {has_projection ? settings.projected_width : facts.num_features};
  shape.widths.insert(shape.widths.end(), settings.hidden_widths.begin(), settings.hidden_widths.end());
  auto const num_outputs = predicts_links(settings) ? settings.embedding_width : facts.num_classes;
  if (settings.has_head)
    shape.head_classes = num_outputs;
  else
    shape.widths.push_back(num_outputs);
  shape.has_residuals = settings.has_residuals;
  shape.projects_residuals = settings.projects_residuals;
  shape.jump = settings.jump;
  auto const traits = traits_of(settings.model, settings.aggregator);
  set_kinds(shape, traits, settings);
  shape.has_self_weights = traits.has_self_weights;
  shape.has_self_scales = traits.has_self_scales;
  shape.has_perceptrons = traits.has_perceptrons;
  shape.takes_maximum = traits.takes_maximum;
  shape.num_powers = traits.has_powers ? settings.num_propagations : 0;
  shape.own = traits.own;
  if (traits.has_relations)
    shape.relations = {facts.num_relations(), settings.num_bases, settings.num_blocks,
                       root_types_of(facts, traits), settings.has_bias};
  if (traits.has_relation_attention) {
    shape.relations.num_bases = shape.relations.num_blocks = 0;
    shape.relations.num_heads = settings.num_heads;
    shape.relations.has_target_weights = settings.has_target_weights;
    shape.relations.drops_coefficients = settings.attention_dropout > 0;
    shape.relations.num_types = std::max<std::int64_t>(1, facts.num_types());
    for (std::int64_t r = 0; r < facts.num_relations(); ++r)
      shape.relations.target_types.push_back(target_type_of(facts, r));
  }
  if (traits.attention)
    shape.attention = AttentionShape{*traits.attention, settings.num_heads, settings.num_output_heads,
                                     num_edge_features_of(settings, facts.num_edge_features)};
  shape.has_sparse_features = facts.feature_kind == graph::FeatureKind::sparse;
  shape.features_need_gradient = settings.trains_features;
  shape.has_input_dropout = settings.input_dropout() > 0;
  shape.drops_edges = settings.edge_dropout > 0;
  shape.schedule = settings.schedule;
  shape.is_symmetric = facts.is_symmetric;
  shape.hidden_axes = settings.hidden_axes;
  return shape;
}

namespace {

void require_attention(NetworkSettings const& settings) {
  auto const is_of_relations = traits_of(settings.model, settings.aggregator).has_relation_attention;
  if (!weighs_neighbours(settings) && !is_of_relations) return;
  if (settings.num_heads < 1 || settings.num_output_heads < 1)
    runtime::throw_user("{} and {} heads: give --heads and --output-heads of at least 1", settings.num_heads,
                        settings.num_output_heads);
  for (auto const width : settings.hidden_widths)
    if (width % settings.num_heads != 0)
      refuse(Refused::heads,
             fmt::format("give other numbers than {} columns and {} heads", width, settings.num_heads));
}

void require_links(NetworkSettings const& settings) {
  if (!predicts_links(settings)) {
    ORTHANT_REQUIRE(settings.decoder_width == 0, "a decoder of links without --task links");
    return;
  }
  if (settings.schedule != Schedule::rows)
    runtime::throw_user(
        "--task links is trained in the schedule rows: leave out --schedule {}, or give --schedule rows",
        name_of(settings.schedule));
  if (settings.wire != runtime::Wire::native || settings.operand_format != runtime::Wire::native)
    refuse(Refused::link_formats, "leave it out");
}

/// Checks SGC, APPNP and GCNII, which begin with a dense layer.
void require_supported_dense(NetworkSettings const& settings) {
  auto const is_deep = settings.model == Model::gcnii;
  ORTHANT_REQUIRE(!is_deep || settings.order != ProductOrder::transform_first, "GCNII aggregates first");
  for (auto const width : settings.hidden_widths)
    if (is_deep && width != settings.hidden_widths.front())
      refuse(Refused::widths,
             fmt::format("give one width in place of {} and {}", settings.hidden_widths.front(), width));
}

void require_jump(NetworkSettings const& settings) {
  if (settings.jump == JumpKind::none) return;
  if (settings.operand_format != runtime::Wire::native)
    refuse(Refused::operand_models, fmt::format("leave it out with --jump {}", name_of(settings.jump)));
  if (std::ranges::adjacent_find(settings.hidden_widths, std::ranges::not_equal_to{}) !=
          settings.hidden_widths.end() &&
      settings.jump != JumpKind::cat)
    refuse(Refused::widths,
           fmt::format("give one width, or --jump cat in place of {}", name_of(settings.jump)));
}

void require_relations(graph::StoreFacts const& facts, NetworkSettings const& settings) {
  if (!traits_of(settings.model, settings.aggregator).has_relations) return;
  if (facts.num_relations() == 0)
    runtime::throw_user(
        "--model {} needs a graph with relations, which partition makes of triples and of folders of "
        "several types: give another --model, or partition such a graph",
        name_of(settings.model));
  if (facts.num_relations() + std::max<std::int64_t>(1, facts.num_types()) > graph::most_relations)
    runtime::throw_user("--model {} can have {} relations less one for each type of vertices, not {}",
                        name_of(settings.model), graph::most_relations, facts.num_relations());
  auto const shares_weights = !traits_of(settings.model, settings.aggregator).has_relation_attention;
  if (shares_weights && settings.num_bases > 0 && settings.num_blocks > 0)
    runtime::throw_user(
        "--bases and --blocks are two ways to share the weights of relations: leave one of them out");
  if (shares_weights && settings.num_bases > facts.num_relations())
    runtime::throw_user(
        "--bases {} for {} relations shares nothing: give fewer, or 0 for a weight per relation",
        settings.num_bases, facts.num_relations());
  if (settings.edge_dropout > 0)
    runtime::throw_user("--edge-dropout is not built for --model {} so far: leave it out",
                        name_of(settings.model));
  if (predicts_links(settings))
    runtime::throw_user("--task links knows no relations so far: give another --model");
}

/// Checks options that only some models support so far.
void require_supported(NetworkSettings const& settings) {
  if (settings.model == Model::gcn) return;
  if (settings.operand_format != runtime::Wire::native)
    refuse(Refused::operand_models, fmt::format("leave it out with --model {}", name_of(settings.model)));
  if (traits_of(settings.model, settings.aggregator).begins_dense()) require_supported_dense(settings);
}

} // namespace

NetworkPlan plan_network(graph::StoreFacts const& facts, NetworkSettings const& settings) {
  require_supported(settings);
  require_attention(settings);
  ORTHANT_REQUIRE(!reads_edges(settings) || !facts.is_weighted, "weights that layers ignore: use_operator()");
  require_relations(facts, settings);
  require_links(settings);
  require_jump(settings);
  auto plan = plan_network(shape_of(facts, settings), settings.order);
  if (shape_of(facts, settings).relations.num_blocks > 0 &&
      std::ranges::none_of(plan.layers, [](NetworkLayerPlan const& layer) {
        return layer.relations && layer.relations->weights.num_blocks > 0;
      }))
    runtime::throw_user(
        "--blocks {} divides the widths of no layer: give a common divisor of a layer's input and "
        "output, or 0 for full weights",
        settings.num_blocks);
  auto const has_fixed_products = [&](NetworkLayerPlan const& layer) {
    auto const is_kept =
        layer.index == 0 && keeps_first_aggregate(plan); // multiplied only once, or once per epoch
    return layer.multiplies_adjacency() && !plan.drops_edges && !is_kept;
  };
  if (settings.trains_features) train_features(plan);
  if (settings.num_fixed_rows) plan.trained_features->has_fixed_rows = true;
  for (auto& layer : plan.layers)
    if (has_fixed_products(layer))
      layer.least_weighted_width =
          pmm::least_weighted_width(facts.num_operator_entries(), facts.num_vertices);
  return plan;
}

NetworkPlan plan_network(graph::GraphStore const& store, NetworkSettings const& settings) {
  auto const& facts = store.facts();
  if (facts.feature_kind == graph::FeatureKind::none && facts.num_types() > 0)
    runtime::throw_user("{} has no features of any type; at least one type needs some, such as an x.npy",
                        store.name());
  if (facts.feature_kind == graph::FeatureKind::none)
    runtime::throw_user(
        "{} has no features; partition it with --random-features D or from data with features", store.name());
  if (predicts_links(settings) && !facts.has_links())
    runtime::throw_user(
        "{} has no held-out edges to predict; partition it with --edge-split VALID,TEST, such as 0.05,0.1",
        store.name());
  if (!predicts_links(settings) && facts.label_kind == graph::LabelKind::none)
    runtime::throw_user(
        "{} has no labels to train on; partition it with --random-labels C or from data with labels",
        store.name());
  auto const is_sparse = facts.feature_kind == graph::FeatureKind::sparse;
  if (is_sparse && settings.trains_features)
    refuse(Refused::sparse_features, fmt::format("leave it out with {}", store.name()));
  return plan_network(facts, settings);
}

} // namespace orthant::models
