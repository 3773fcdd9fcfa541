// SPDX-License-Identifier: Apache-2.0
#include "models/plan/gnn_model.hpp"

#include "runtime/error.hpp"

namespace orthant::models {

Model parse_model(std::string_view word) {
  if (word == "gcn") return Model::gcn;
  if (word == "sage") return Model::sage;
  if (word == "gin") return Model::gin;
  runtime::throw_user("--model is gcn, sage or gin, not '{}'", word);
}

Aggregator parse_aggregator(std::string_view word) {
  if (word == "mean") return Aggregator::mean;
  if (word == "sum") return Aggregator::sum;
  runtime::throw_user("--aggregator is mean or sum, not '{}'", word);
}

std::string_view name_of(Model model) {
  return model == Model::gcn ? "gcn" : model == Model::sage ? "sage" : "gin";
}

std::string_view name_of(Aggregator aggregator) {
  return aggregator == Aggregator::mean ? "mean" : "sum";
}

ModelTraits traits_of(Model model, Aggregator aggregator) {
  using graph::Normalization;
  if (model == Model::gcn) return {};
  // The vertex itself has a weight or a factor of its own: it is no neighbour.
  if (model == Model::gin)
    return {.has_self_scales = true,
            .has_perceptrons = true,
            .graph_operator = graph::GraphOperator{Normalization::none, graph::SelfLoops::dropped}};
  auto const normalization = aggregator == Aggregator::mean ? Normalization::row : Normalization::none;
  return {.has_self_weights = true,
          .graph_operator = graph::GraphOperator{normalization, graph::SelfLoops::dropped}};
}

} // namespace orthant::models
