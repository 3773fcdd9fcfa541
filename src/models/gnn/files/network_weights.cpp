// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/files/network_weights.hpp"

#include "runtime/comm/together.hpp"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

namespace orthant::models {

using runtime::Hdf5File;

std::string_view name_of_residuals(bool has_residuals, bool projects_residuals) {
  return !has_residuals ? "no" : projects_residuals ? "project" : "yes";
}

Architecture architecture_of(NetworkSettings const& settings) {
  auto const yes_or_no = [](bool has_it) { return std::string(has_it ? "yes" : "no"); };
  Architecture parts{{"model", std::string(name_of(settings.model))}};
  if (settings.model == Model::sage || settings.model == Model::graphconv)
    parts.emplace_back("aggregator", name_of(settings.aggregator));
  auto const traits = traits_of(settings.model, settings.aggregator);
  if (traits.has_steps()) parts.emplace_back("propagation_steps", std::to_string(settings.num_propagations));
  if (traits.has_teleport) parts.emplace_back("teleport", fmt::format("{}", settings.teleport));
  if (traits.has_identity_maps) parts.emplace_back("theta", fmt::format("{}", settings.theta));
  if (traits.has_relation_attention) {
    parts.emplace_back("heads", std::to_string(settings.num_heads));
    parts.emplace_back("target_weights", yes_or_no(settings.has_target_weights));
    parts.emplace_back("roots", std::to_string(settings.num_roots));
  } else if (traits.has_relations) {
    parts.emplace_back("bases", std::to_string(settings.num_bases));
    parts.emplace_back("blocks", std::to_string(settings.num_blocks));
    if (settings.num_roots > 0) parts.emplace_back("roots", std::to_string(settings.num_roots));
  }
  if (weighs_neighbours(settings)) {
    parts.emplace_back("heads", std::to_string(settings.num_heads));
    parts.emplace_back("output_heads", std::to_string(settings.num_output_heads));
    if (traits.attention != AttentionKind::transformer)
      parts.emplace_back("edge_features", std::to_string(settings.num_edge_features.value_or(0)));
  }
  Architecture const others{
      {"layers", std::to_string(settings.num_layers())},
      {"norm", std::string(name_of(settings.norm))},
      {"activation", std::string(name_of(settings.activation))},
      {"residual", std::string(name_of_residuals(settings.has_residuals, settings.projects_residuals))},
      {"input_projection", yes_or_no(settings.projected_width > 0)},
      {"head", yes_or_no(settings.has_head)},
      {"bias", yes_or_no(settings.has_bias)},
      {"jump", std::string(name_of(settings.jump))},
      {"trained_features", yes_or_no(settings.trains_features)}};
  parts.insert(parts.end(), others.begin(), others.end());
  if (predicts_links(settings)) {
    parts.emplace_back("task", "links");
    parts.emplace_back("decoder", settings.decoder_width > 0 ? "mlp" : "dot");
    if (settings.decoder_width > 0)
      parts.emplace_back("decoder_hidden", std::to_string(settings.decoder_width));
  }
  return parts;
}

Architecture record_of(NetworkSettings const& settings) {
  auto record = architecture_of(settings);
  record.emplace_back("feature_norm", settings.feature_norm == FeatureNorm::row ? "row" : "none");
  if (settings.normalization) record.emplace_back("normalization", graph::name_of(*settings.normalization));
  if (settings.self_loops) record.emplace_back("self_loops", graph::name_of(*settings.self_loops));
  return record;
}

Architecture record_of(NetworkSettings const& settings, graph::StoreFacts const& facts) {
  constexpr std::size_t longest = 32'768; // an attribute has at most 64 KiB
  auto record = record_of(settings);
  if (predicts_links(settings)) return record;
  record.emplace_back("labels", graph::name_of(facts.label_kind));
  if (auto names =
          nlohmann::json(facts.class_names).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
      facts.has_class_names() && names.size() <= longest)
    record.emplace_back("class_names", std::move(names));
  return record;
}

namespace {

/// Sets the kind of the labels and the names of classes.
void read_labels(Hdf5File const& file, std::filesystem::path const& path, WeightsFacts& facts) {
  if (file.contains_attribute("/", "labels")) facts.label_kind = file.read_text("/", "labels");
  if (!file.contains_attribute("/", "class_names")) return;
  auto const names = nlohmann::json::parse(file.read_text("/", "class_names"), nullptr, false);
  auto const is_list =
      names.is_array() && std::ranges::all_of(names, [](auto const& name) { return name.is_string(); });
  if (!is_list)
    runtime::throw_user("{}: its attribute class_names is not a JSON list of texts", path.string());
  names.get_to(facts.class_names);
}

} // namespace

NetworkSettings settings_of(WeightsFacts const& facts) {
  NetworkSettings settings;
  auto const last = facts.widths.end() - (facts.head_classes ? 0 : 1);
  // The first layer of GCNII is dense, and its width is not among the hidden widths.
  settings.hidden_widths.assign(facts.widths.begin() + (facts.model == Model::gcnii ? 2 : 1), last);
  settings.num_propagations = facts.num_propagations;
  settings.teleport = facts.teleport;
  settings.theta = facts.theta;
  if (facts.projected_features) settings.projected_width = facts.widths.front();
  settings.has_head = facts.head_classes.has_value();
  settings.has_residuals = facts.has_residuals;
  settings.projects_residuals = facts.projects_residuals;
  settings.jump = facts.jump;
  if (facts.predicts_links) {
    settings.embedding_width = facts.num_classes();
    settings.decoder_width = facts.decoder_width;
    settings.schedule = Schedule::rows;
  }
  settings.norm = facts.norm;
  settings.activation = facts.activation;
  settings.has_bias = facts.has_bias;
  settings.dropout = 0;
  settings.feature_norm = facts.feature_norm.value_or(FeatureNorm::none);
  set_model(settings, facts.model, facts.aggregator);
  settings.num_bases = facts.num_bases;
  settings.num_blocks = facts.num_blocks;
  settings.num_heads = facts.num_heads;
  settings.has_target_weights = facts.has_target_weights;
  settings.num_output_heads = facts.num_output_heads;
  settings.num_edge_features = facts.num_edge_features;
  if (facts.normalization) settings.normalization = facts.normalization;
  if (facts.self_loops) settings.self_loops = facts.self_loops;
  return settings;
}

std::int64_t last_layer_of(WeightsFacts const& facts) {
  auto const num_layers = std::ssize(facts.widths) - 1;
  auto const propagates = traits_of(facts.model, facts.aggregator).has_propagations;
  return num_layers + (propagates ? facts.num_propagations : 0) - (facts.head_classes ? 0 : 1);
}

std::optional<std::string> weights_of_classes(WeightsFacts const& facts) {
  if (facts.predicts_links) return std::nullopt;
  if (facts.jump == JumpKind::cat) return "head.*,layer*.jump.*";
  if (facts.head_classes) return "head.*";
  auto const last = std::ssize(facts.widths) - 2;
  return last > 0 ? std::optional(fmt::format("layer{}.*", last)) : std::nullopt;
}

namespace {

/// Whether the file records a language model; "transformer" is the name of a graph network, too.
bool is_of_language_model(Hdf5File const& file) {
  return file.contains_attribute("/", "position_kind");
}

/// Number of heads and columns per head of an attention layer whose weight has `num_columns` columns (gnn/plan/network_plan.hpp).
/// GAT has vectors of 2 d numbers for heads x d columns, GATv2 vectors of d numbers for twice as many columns.
pmm::Heads heads_of(std::int64_t num_heads, std::int64_t num_vector, std::int64_t num_columns,
                    WeightsFacts& facts) {
  if (facts.model == Model::transformer) return {num_heads, num_vector / 2};
  auto const is_dynamic = num_columns == 2 * num_heads * num_vector;
  if (facts.model == Model::gcn)
    facts.model = is_dynamic ? Model::gatv2 : Model::gat; // the file records no model
  return {num_heads, num_vector / (is_dynamic ? 1 : 2)};
}

} // namespace

std::optional<Model> recorded_model(Hdf5File const& file, std::filesystem::path const& path) {
  if (!file.contains_attribute("/", "model")) return std::nullopt;
  auto const name = file.read_text("/", "model");
  if (is_of_language_model(file))
    runtime::throw_user("{} holds weights of a language model, not of a graph network; export-weights "
                        "--format hf exports them",
                        path.string());
  auto const known = model_names();
  if (std::ranges::find(known, name) == known.end())
    runtime::throw_user("{}: its model is '{}', which this program does not have; read it with the program "
                        "that registers it",
                        path.string(), name);
  return parse_model(name);
}

template<class Number>
Number recorded_number(Hdf5File const& file, std::filesystem::path const& path, char const* name,
                       Number otherwise) {
  if (!file.contains_attribute("/", name)) return otherwise;
  auto const text = file.read_text("/", name);
  if (std::from_chars(text.data(), text.data() + text.size(), otherwise).ptr != text.data() + text.size())
    runtime::throw_user("{}: its attribute {} is '{}', which is no number", path.string(), name, text);
  return otherwise;
}
template std::int64_t recorded_number(Hdf5File const&, std::filesystem::path const&, char const*,
                                      std::int64_t);
template double recorded_number(Hdf5File const&, std::filesystem::path const&, char const*, double);

WeightsFacts read_weights_facts(runtime::Communicator const& comm, std::filesystem::path const& path) {
  return runtime::together(comm, [&] {
    auto const file = Hdf5File::open(path);
    WeightsFacts facts;
    auto const recorded = recorded_model(file, path);
    facts.model = recorded.value_or(facts.model);
    auto const number = [&](char const* name, auto otherwise) {
      return recorded_number(file, path, name, otherwise);
    };
    facts.num_propagations = number("propagation_steps", facts.num_propagations);
    facts.num_bases = number("bases", facts.num_bases);
    facts.num_blocks = number("blocks", facts.num_blocks);
    facts.num_roots = number("roots", facts.num_roots);
    if (facts.num_roots < 0) runtime::throw_user("{}: {} roots", path.string(), facts.num_roots);
    auto const has_relations = traits_of(facts.model, facts.aggregator).has_relations;
    auto const is_rgat = facts.model == Model::rgat;
    if (is_rgat) facts.num_heads = number("heads", facts.num_heads);
    facts.has_target_weights = file.contains(array_of("layer0.target_weight"));
    auto const num_weights = // matrices side by side in the weight of a layer
        traits_of(facts.model, facts.aggregator).has_powers ? 1 + facts.num_propagations : 1;
    auto const require_fits = [&](std::string const& parameter, std::int64_t num_rows) {
      if (!facts.widths.empty() && facts.widths.back() != num_rows)
        runtime::throw_user("{}: {} has {} rows, but the layer before it gives {} columns", path.string(),
                            array_of(parameter), num_rows, facts.widths.back());
    };
    auto const projection = weight_extents(file, path, "input.weight");
    if (projection) {
      facts.projected_features = (*projection)[0];
      facts.widths.push_back((*projection)[1]);
    }
    std::vector<pmm::Heads> heads; // [layers]; empty without attention
    for (auto layer = 0;; ++layer) {
      // The weights of all relations are stored one below the other. The weight of the vertex itself shows the layer's widths.
      auto const has_roots = has_relations && facts.num_roots > 0; // one below the other
      auto const name = fmt::format("layer{}.{}", layer,
                                    is_rgat         ? "weight"
                                    : has_roots     ? "roots"
                                    : has_relations ? "self_weight"
                                                    : "weight");
      auto weight = weight_extents(file, path, name);
      if (weight && has_roots) (*weight)[0] /= facts.num_roots;
      if (!weight && layer == 0)
        runtime::throw_user("{} holds no weights: there is no {} in it", path.string(), array_of(name));
      if (!weight) break;
      require_fits(name, (*weight)[0]);
      if (facts.widths.empty()) facts.widths.push_back((*weight)[0]);
      if (num_weights < 1 || (*weight)[1] % num_weights != 0)
        runtime::throw_user("{}: {} has {} columns, which are not those of {} weights", path.string(),
                            array_of(name), (*weight)[1], num_weights);
      facts.widths.push_back((*weight)[1] / num_weights);
      auto const vectors =
          is_rgat ? std::nullopt : weight_extents(file, path, fmt::format("layer{}.attention", layer));
      if (vectors) {
        heads.push_back(heads_of((*vectors)[0], (*vectors)[1], (*weight)[1], facts));
        facts.widths.back() = heads.back().columns();
      }
    }
    if (!heads.empty()) facts.num_heads = heads.front().count;
    if (auto const edges = weight_extents(file, path, "layer0.edge_weight"); edges && !heads.empty())
      facts.num_edge_features = (*edges)[0];
    if (!heads.empty() &&
        !file.contains(array_of("head.weight"))) { // the last layer outputs the mean of its heads
      facts.num_output_heads = heads.back().count;
      facts.widths.back() = heads.back().width;
    }
    if (auto const head = weight_extents(file, path, "head.weight")) {
      require_fits("head.weight", (*head)[0]);
      facts.head_classes = (*head)[1];
    }
    if (!recorded && file.contains(array_of("layer0.self_weight"))) facts.model = Model::sage;
    if (!recorded && file.contains(array_of("layer0.epsilon"))) facts.model = Model::gin;
    facts.teleport = number("teleport", facts.teleport);
    facts.theta = number("theta", facts.theta);
    if (file.contains_attribute("/", "aggregator"))
      facts.aggregator = parse_aggregator(file.read_text("/", "aggregator"));
    facts.has_bias = file.contains(array_of("layer0.bias")) || file.contains(array_of("layer0.biases"));
    facts.has_features = file.contains(array_of("features"));
    // A layer that outputs the logits has no scale, even if the network has a norm. So the file of a single layer must record the norm.
    facts.norm = file.contains_attribute("/", "norm")           ? parse_norm(file.read_text("/", "norm"))
                 : file.contains(array_of("layer0.norm_mean"))  ? Norm::batch
                 : file.contains(array_of("layer0.norm_shift")) ? Norm::layer
                 : file.contains(array_of("layer0.norm"))       ? Norm::rms
                                                                : Norm::none;
    if (file.contains_attribute("/", "activation"))
      facts.activation = parse_activation(file.read_text("/", "activation"));
    if (file.contains_attribute("/", "feature_norm"))
      facts.feature_norm = parse_feature_norm(file.read_text("/", "feature_norm"));
    if (file.contains_attribute("/", "normalization"))
      facts.normalization = graph::parse_normalization(file.read_text("/", "normalization"));
    if (file.contains_attribute("/", "self_loops"))
      facts.self_loops = graph::parse_self_loops(file.read_text("/", "self_loops"));
    if (file.contains_attribute("/", "residual")) {
      auto const residual = file.read_text("/", "residual");
      facts.has_residuals = residual != "no";
      facts.projects_residuals = residual == "project";
    }
    read_labels(file, path, facts);
    if (file.contains_attribute("/", "jump")) facts.jump = parse_jump(file.read_text("/", "jump"));
    if (file.contains_attribute("/", "task")) facts.predicts_links = file.read_text("/", "task") == "links";
    if (auto const decoder = weight_extents(file, path, "decoder.weight"); decoder && facts.predicts_links)
      facts.decoder_width = (*decoder)[1];
    return facts;
  });
}

} // namespace orthant::models
