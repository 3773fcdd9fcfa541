// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/plan/gnn_model.hpp"

#include "runtime/error.hpp"

#include <array>
#include <utility>

namespace orthant::models {
namespace {

constexpr std::array<std::pair<Model, std::string_view>, 8> names{{{Model::gcn, "gcn"},
                                                                   {Model::sage, "sage"},
                                                                   {Model::gin, "gin"},
                                                                   {Model::sgc, "sgc"},
                                                                   {Model::appnp, "appnp"},
                                                                   {Model::gcnii, "gcnii"},
                                                                   {Model::gat, "gat"},
                                                                   {Model::gatv2, "gatv2"}}};

} // namespace

Model parse_model(std::string_view word) {
  for (auto const& [model, name] : names)
    if (name == word) return model;
  runtime::throw_user("--model is gcn, sage, gin, sgc, appnp, gcnii, gat or gatv2, not '{}'", word);
}

Aggregator parse_aggregator(std::string_view word) {
  if (word == "mean") return Aggregator::mean;
  if (word == "sum") return Aggregator::sum;
  if (word == "max") return Aggregator::max;
  runtime::throw_user("--aggregator is mean, sum or max, not '{}'", word);
}

std::string_view name_of(Model model) {
  for (auto const& [known, name] : names)
    if (known == model) return name;
  return {};
}

std::string_view name_of(Aggregator aggregator) {
  return aggregator == Aggregator::mean ? "mean" : aggregator == Aggregator::sum ? "sum" : "max";
}

ModelTraits traits_of(Model model, Aggregator aggregator) {
  using graph::Normalization;
  switch (model) {
  case Model::gcn:
    return {};
  case Model::gat:
  case Model::gatv2:
    return {.graph_operator = graph::GraphOperator{Normalization::none, graph::SelfLoops::added},
            .attention = model == Model::gat ? AttentionKind::gat : AttentionKind::gatv2};
  case Model::sgc:
    return {.has_propagations = true};
  case Model::appnp:
    return {.has_propagations = true, .has_teleport = true};
  case Model::gcnii:
    return {.has_teleport = true, .has_identity_maps = true};
  // The vertex itself has its own weight or factor, so A^ has no self loops.
  case Model::gin:
    return {.has_self_scales = true,
            .has_perceptrons = true,
            .graph_operator = graph::GraphOperator{Normalization::none, graph::SelfLoops::dropped}};
  case Model::sage:
    break;
  }
  auto const normalization = aggregator == Aggregator::mean ? Normalization::row : Normalization::none;
  return {.has_self_weights = true,
          .takes_maximum = aggregator == Aggregator::max,
          .graph_operator = graph::GraphOperator{normalization, graph::SelfLoops::dropped}};
}

} // namespace orthant::models
