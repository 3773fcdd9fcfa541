#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The networks that are held beside their equations (reference_test.cpp), each with its graph.

#include "models/reference/skip_cases.hpp"

#include <fmt/format.h>
#include <string>
#include <vector>

namespace orthant::testing {

inline std::vector<ReferenceCase> cases_of(Model model, Aggregator aggregator) {
  std::vector<ReferenceCase> all;
  auto const add = [&](char const* name, auto const& change) -> ReferenceCase& {
    ReferenceCase next;
    next.name = std::string(name_of(model)) + " " + std::string(name_of(aggregator)) + ", " + name;
    next.settings.dropout = 0;
    next.settings.seed = 5;
    next.settings.set_layers(3, 7);
    change(next.settings);
    set_model(next.settings, model, aggregator);
    next.settings.set_layers(3, 7);
    all.push_back(next);
    return all.back();
  };
  auto const with_all_parts = [](auto& s) {
    s.norm = models::Norm::rms;
    s.has_residuals = s.has_head = true;
    s.projected_width = 7;
  };
  add("plain", [](auto&) {});
  auto& directed = add("all parts of a directed graph with weights", with_all_parts);
  directed.recipe.is_directed = directed.recipe.is_weighted = true;
  auto& sparse = add("sparse features, no bias, residuals", [](auto& s) {
    s.has_bias = false;
    s.has_residuals = true;
  });
  sparse.recipe.num_features = 24;
  sparse.recipe.features_per_vertex = 4;
  sparse.recipe.permutation = graph::PermutationKind::single;
  return all;
}

/// A GCN with every operator that is not a store's own, of a graph with weights and self loops.
inline std::vector<ReferenceCase> cases_of_operators() {
  using graph::Normalization;
  using graph::SelfLoops;
  std::vector<ReferenceCase> all;
  for (auto const& [normalization, self_loops] : {std::pair(Normalization::symmetric, SelfLoops::dropped),
                                                  {Normalization::row, SelfLoops::added},
                                                  {Normalization::row, SelfLoops::dropped},
                                                  {Normalization::none, SelfLoops::added},
                                                  {Normalization::none, SelfLoops::as_given},
                                                  {Normalization::none, SelfLoops::dropped}}) {
    ReferenceCase next;
    next.name = fmt::format("gcn, {}, {} self loops", name_of(normalization), name_of(self_loops));
    next.settings.dropout = 0;
    next.settings.seed = 5;
    next.settings.set_layers(2, 7);
    next.settings.normalization = normalization;
    next.settings.self_loops = self_loops;
    next.recipe.is_directed = next.recipe.is_weighted = true;
    all.push_back(next);
  }
  return all;
}

/// Every model with features that are trained, in both orders of the products.
inline std::vector<ReferenceCase> cases_of_trained_features() {
  std::vector<ReferenceCase> all;
  auto const add = [&](Model model, Aggregator aggregator, models::ProductOrder order, bool has_parts) {
    ReferenceCase next;
    next.name = fmt::format("{} {}, trained features{}{}", name_of(model), name_of(aggregator),
                            order == models::ProductOrder::transform_first ? ", transform first" : "",
                            has_parts ? ", all parts" : "");
    next.settings.trains_features = true;
    next.settings.order = order;
    next.settings.num_propagations = 2; // rescaled edges make high powers of batches large
    next.settings.dropout = 0;
    next.settings.seed = 5;
    next.settings.num_heads = 3;
    if (has_parts) {
      next.settings.norm = models::Norm::layer;
      next.settings.has_residuals = next.settings.has_head = true;
      next.settings.projected_width = 6;
    }
    set_model(next.settings, model, aggregator);
    next.settings.set_layers(model == Model::sgc ? 1 : 3, 6);
    all.push_back(next);
  };
  for (auto const order : {models::ProductOrder::aggregate_first, models::ProductOrder::transform_first})
    for (auto const model : {Model::gcn, Model::sage, Model::gin})
      add(model, Aggregator::mean, order, false);
  for (auto const model : {Model::gat, Model::gatv2, Model::sgc, Model::appnp, Model::gcnii})
    add(model, Aggregator::mean, models::ProductOrder::automatic, false);
  add(Model::sage, Aggregator::max, models::ProductOrder::automatic, false);
  add(Model::gcn, Aggregator::mean, models::ProductOrder::automatic, true);
  add(Model::tag, Aggregator::mean, models::ProductOrder::automatic, false);
  return all;
}

/// GraphSAGE with the maximum of the neighbours. Vertices without neighbours are among them.
inline std::vector<ReferenceCase> cases_of_maximum() {
  std::vector<ReferenceCase> all;
  auto const add = [&](char const* name, auto const& change) -> ReferenceCase& {
    ReferenceCase next;
    next.name = std::string("sage max, ") + name;
    next.settings.dropout = 0;
    next.settings.seed = 5;
    change(next.settings);
    set_model(next.settings, Model::sage, Aggregator::max);
    next.settings.set_layers(3, 7);
    all.push_back(next);
    return all.back();
  };
  add("few edges", [](auto&) {}).recipe.num_edges = 40;
  add("all parts of a directed graph", [](auto& s) {
    s.norm = models::Norm::rms;
    s.has_residuals = s.has_head = true;
    s.projected_width = 7;
  }).recipe.is_directed = true;
  for (auto const projected_width : {0, 7}) {
    auto& sparse =
        add(projected_width == 0 ? "sparse features" : "sparse features behind a projection, no bias, elu",
            [&](auto& s) {
              s.has_bias = projected_width == 0;
              s.activation = projected_width == 0 ? models::Activation::relu : models::Activation::elu;
              s.projected_width = projected_width;
            });
    sparse.recipe.num_features = 24;
    sparse.recipe.features_per_vertex = 4;
    if (projected_width > 0) sparse.recipe.permutation = graph::PermutationKind::single;
  }
  return all;
}

/// Heads that no axis of 2 or 4 ranks divides, and fewer than ranks; one layer's output is the mean of several.
inline std::vector<ReferenceCase> cases_of_attention() {
  std::vector<ReferenceCase> all;
  for (auto const model : {Model::gat, Model::gatv2, Model::transformer}) {
    auto const add = [&](char const* name, auto const& change) -> ReferenceCase& {
      ReferenceCase next;
      next.name = std::string(name_of(model)) + ", " + name;
      next.settings.dropout = 0;
      next.settings.seed = 5;
      next.settings.num_heads = 3;
      change(next.settings);
      set_model(next.settings, model);
      next.settings.set_layers(3, 6);
      all.push_back(next);
      return all.back();
    };
    add("elu", [](auto& s) { s.activation = models::Activation::elu; });
    add("means of heads, sparse features, no bias, residuals",
        [](auto& s) {
          s.has_bias = false;
          s.has_residuals = true;
          s.num_heads = 1;
          s.num_output_heads = 3;
        })
        .recipe = {.num_vertices = 61,
                   .num_edges = 200,
                   .num_features = 24,
                   .features_per_vertex = 4,
                   .permutation = graph::PermutationKind::single};
    add("all parts of a directed graph", [](auto& s) {
      s.norm = models::Norm::rms;
      s.has_residuals = s.has_head = true;
      s.projected_width = 6;
    }).recipe.is_directed = true;
    add("projected residuals", [](auto& s) { s.has_residuals = s.projects_residuals = true; });
    for (auto const jump : {models::JumpKind::cat, models::JumpKind::max})
      add("jump", [&](auto& s) {
        s.jump = jump;
        s.has_head = true;
        s.activation = models::Activation::elu;
      });
    add("batch norm", [](auto& s) {
      s.norm = models::Norm::batch;
      s.has_bias = false; // cases_of_norms()
    });
  }
  return all;
}

/// Powers of A^. Between owners of vertices alone.
inline std::vector<ReferenceCase> cases_of_powers() {
  auto all = cases_of(Model::tag, Aggregator::mean);
  for (std::int64_t num_powers = 0; auto& c : all) {
    c.settings.num_propagations = ++num_powers;
    c.name += fmt::format(", {} powers", num_powers);
  }
  return all;
}

/// LayerNorm and BatchNorm in every place where a model has a norm. BatchNorm takes out a bias before it, whose gradient is of rounding errors
/// alone: Adam would make whole steps of them. So it goes without biases.
inline std::vector<ReferenceCase> cases_of_norms() {
  std::vector<ReferenceCase> all;
  for (auto const norm : {models::Norm::layer, models::Norm::batch}) {
    auto const add = [&](Model model, char const* name, auto const& change) -> ReferenceCase& {
      ReferenceCase next;
      next.name = fmt::format("{}, {} norm, {}", name_of(model), name_of(norm), name);
      next.settings.dropout = 0;
      next.settings.seed = 5;
      next.settings.norm = norm;
      next.settings.has_bias = norm != models::Norm::batch;
      change(next.settings);
      set_model(next.settings, model);
      next.settings.set_layers(3, 7);
      all.push_back(next);
      return all.back();
    };
    add(Model::gcn, "plain", [](auto&) {});
    add(Model::gcn, "gelu, residuals, projection, no bias, directed", [](auto& s) {
      s.activation = models::Activation::gelu;
      s.has_residuals = true;
      s.has_bias = false;
      s.projected_width = 7;
    }).recipe.is_directed = true;
    add(Model::sage, "residuals", [](auto& s) { s.has_residuals = true; });
    add(Model::gin, "plain", [](auto&) {});
    add(Model::gcnii, "elu", [](auto& s) { s.activation = models::Activation::elu; });
  }
  return all;
}

/// A part of the edges goes in each step; A^ F0 would be kept from step to step otherwise.
inline std::vector<ReferenceCase> cases_of_dropped_edges() {
  std::vector<ReferenceCase> all;
  for (auto const model : {Model::gcn, Model::sage, Model::gin, Model::sgc, Model::appnp, Model::gcnii}) {
    ReferenceCase next;
    next.name = fmt::format("{}, dropped edges", name_of(model));
    next.settings.dropout = 0;
    next.settings.seed = 5;
    next.settings.edge_dropout = 0.3;
    next.settings.num_propagations = 3;
    set_model(next.settings, model);
    next.settings.set_layers(model == Model::sgc ? 1 : 3, 7);
    all.push_back(next);
    if (model != Model::gcn) continue;
    next.name += ", directed with weights, projection, one order";
    next.settings.projected_width = 7;
    next.settings.order = models::ProductOrder::aggregate_first;
    next.recipe.is_directed = next.recipe.is_weighted = true;
    next.recipe.permutation = graph::PermutationKind::single;
    all.push_back(next);
  }
  for (auto const model : {Model::gat, Model::gatv2, Model::transformer, Model::sage}) {
    ReferenceCase next;
    next.name = fmt::format("{}, dropped edges, weights that are ignored", name_of(model));
    next.settings.dropout = 0;
    next.settings.seed = 5;
    next.settings.edge_dropout = 0.6;
    next.settings.num_heads = 3;
    set_model(next.settings, model, Aggregator::max);
    next.settings.set_layers(3, 6);
    next.recipe.is_directed = next.recipe.is_weighted = true;
    all.push_back(next);
  }
  return all;
}

inline std::vector<ReferenceCase> cases_of_activations() {
  using models::Activation;
  using models::Norm;
  std::vector<ReferenceCase> all;
  auto const add = [&](Model model, Activation activation, Norm norm, bool has_residuals) {
    ReferenceCase next;
    next.name = fmt::format("{}, {}, {} norm, residuals {}", name_of(model), name_of(activation),
                            name_of(norm), has_residuals);
    next.settings.dropout = 0;
    next.settings.seed = 5;
    next.settings.has_residuals = has_residuals;
    next.settings.has_head = model == Model::gcn && norm == Norm::none;
    next.settings.has_bias = norm != Norm::batch; // cases_of_norms()
    next.settings.activation = activation;
    next.settings.norm = norm;
    set_model(next.settings, model);
    next.settings.set_layers(3, 7);
    all.push_back(next);
  };
  for (auto const activation :
       {Activation::elu, Activation::gelu, Activation::silu, Activation::leaky_relu, Activation::tanh})
    add(Model::gcn, activation, Norm::none, true);
  add(Model::gcn, Activation::silu, Norm::rms, true);
  add(Model::sage, Activation::tanh, Norm::rms, false);
  add(Model::gin, Activation::gelu, Norm::none, false);
  add(Model::gin, Activation::leaky_relu, Norm::rms, false);
  add(Model::gin, Activation::elu, Norm::batch, false);
  return all;
}

inline std::vector<ReferenceCase> cases_of_propagation() {
  std::vector<ReferenceCase> all;
  auto const add = [&](Model model, char const* name, auto const& change) -> ReferenceCase& {
    ReferenceCase next;
    next.name = std::string(name_of(model)) + ", " + name;
    next.settings.dropout = 0;
    next.settings.seed = 5;
    set_model(next.settings, model);
    next.settings.set_layers(model == Model::sgc ? 1 : 2, 7);
    change(next.settings);
    all.push_back(next);
    return all.back();
  };
  auto const make_sparse = [](ReferenceCase& c) {
    c.recipe.num_features = 24;
    c.recipe.features_per_vertex = 4;
    c.recipe.permutation = graph::PermutationKind::single;
  };
  for (auto const model : {Model::sgc, Model::appnp, Model::gcnii}) {
    auto& plain = add(model, "plain, directed with weights", [](auto& s) { s.num_propagations = 3; });
    plain.recipe.is_directed = plain.recipe.is_weighted = true;
  }
  make_sparse(add(Model::sgc, "4 steps, sparse features, no bias", [](auto& s) {
    s.num_propagations = 4;
    s.has_bias = false;
  }));
  make_sparse(add(Model::appnp, "a norm, sparse features", [](auto& s) {
    s.num_propagations = 4;
    s.teleport = 0.3;
    s.norm = models::Norm::rms;
  }));
  make_sparse(add(Model::gcnii, "8 layers, sparse features, no bias", [](auto& s) {
    s.set_layers(8, 7);
    s.teleport = 0.2;
    s.theta = 0.9;
    s.has_bias = false;
  }));
  add(Model::gcnii, "a norm", [](auto& s) { s.norm = models::Norm::rms; });
  return all;
}

inline std::vector<ReferenceCase> all_cases() {
  std::vector<ReferenceCase> all;
  auto const append = [&](std::vector<ReferenceCase> const& cases) {
    all.insert(all.end(), cases.begin(), cases.end());
  };
  append(cases_of(Model::gcn, Aggregator::mean));
  append(cases_of(Model::sage, Aggregator::mean));
  append(cases_of(Model::sage, Aggregator::sum));
  append(cases_of(Model::graphconv, Aggregator::sum));
  append(cases_of(Model::gin, Aggregator::sum));
  append(cases_of_activations());
  append(cases_of_norms());
  append(cases_of_propagation());
  append(cases_of_residuals());
  append(cases_of_jumps());
  return all;
}

} // namespace orthant::testing
