// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/plan/gnn_model.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

namespace orthant::models {
namespace {

std::vector<std::shared_ptr<Convolution const>>& convolutions() {
  static std::vector<std::shared_ptr<Convolution const>> all;
  return all;
}

} // namespace

void register_convolution(Convolution convolution) {
  auto const names = model_names();
  ORTHANT_REQUIRE(!convolution.name.empty() && std::ranges::find(names, convolution.name) == names.end(),
                  "a convolution named '", convolution.name, "' exists already, or its name is empty");
  ORTHANT_REQUIRE(convolution.make_float && convolution.make_double, convolution.name,
                  " has no aggregation: call register_convolution<Mine>()");
  convolutions().push_back(std::make_shared<Convolution const>(std::move(convolution)));
}

std::vector<std::shared_ptr<Convolution const>> const& registered_convolutions() {
  return convolutions();
}

namespace {

/// In the order of the enumeration.
constexpr std::array<std::string_view, num_built_in_models> names{
    "gcn",   "sage", "graphconv", "tag",         "gin",  "sgc",   "appnp",
    "gcnii", "gat",  "gatv2",     "transformer", "rgcn", "rsage", "rgat"};

} // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> all(names.begin(), names.end());
  for (auto const& own : registered_convolutions())
    all.push_back(own->name);
  return all;
}

Model parse_model(std::string_view word) {
  auto const all = model_names();
  for (std::size_t m = 0; m < all.size(); ++m)
    if (all[m] == word) return static_cast<Model>(m);
  runtime::throw_user("--model is one of {}, not '{}'", fmt::join(all, ", "), word);
}

Aggregator parse_aggregator(std::string_view word) {
  if (word == "mean") return Aggregator::mean;
  if (word == "sum") return Aggregator::sum;
  if (word == "max") return Aggregator::max;
  runtime::throw_user("--aggregator is mean, sum or max, not '{}'", word);
}

Aggregator usual_aggregator(Model model) {
  return model == Model::graphconv ? Aggregator::sum : Aggregator::mean;
}

std::string_view name_of(Model model) {
  auto const m = static_cast<std::size_t>(model);
  return m < names.size() ? names.at(m) : registered_convolutions().at(m - names.size())->name;
}

std::string_view name_of(Aggregator aggregator) {
  return aggregator == Aggregator::mean ? "mean" : aggregator == Aggregator::sum ? "sum" : "max";
}

ModelTraits traits_of(Model model, Aggregator aggregator) {
  using graph::Normalization;
  if (auto const m = static_cast<std::size_t>(model); m >= num_built_in_models) {
    auto const& own = registered_convolutions().at(m - num_built_in_models);
    return {.has_self_weights = own->has_self_weights, .graph_operator = own->graph_operator, .own = own};
  }
  switch (model) {
  case Model::gcn:
    return {};
  case Model::gat:
  case Model::gatv2:
    return {.graph_operator = graph::GraphOperator{Normalization::none, graph::SelfLoops::added},
            .attention = model == Model::gat ? AttentionKind::gat : AttentionKind::gatv2};
  case Model::transformer:
    return {.graph_operator = graph::GraphOperator{Normalization::none, graph::SelfLoops::dropped},
            .attention = AttentionKind::transformer};
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
  case Model::tag:
    return {.has_powers = true,
            .graph_operator = graph::GraphOperator{Normalization::symmetric, graph::SelfLoops::dropped}};
  case Model::rgcn:
    return {.has_self_weights = true,
            .has_relations = true,
            .graph_operator = graph::GraphOperator{Normalization::none, graph::SelfLoops::as_given}};
  case Model::rsage:
    return {.has_self_weights = true,
            .has_relations = true,
            .has_relation_roots = true,
            .graph_operator = graph::GraphOperator{Normalization::none, graph::SelfLoops::as_given}};
  case Model::rgat:
    return {.has_relations = true,
            .has_relation_attention = true,
            .graph_operator = graph::GraphOperator{Normalization::none, graph::SelfLoops::as_given}};
  case Model::sage:
  case Model::graphconv:
    break;
  }
  auto const normalization = aggregator == Aggregator::mean ? Normalization::row : Normalization::none;
  return {.has_self_weights = true,
          .takes_maximum = aggregator == Aggregator::max,
          .graph_operator = graph::GraphOperator{normalization, graph::SelfLoops::dropped}};
}

} // namespace orthant::models
