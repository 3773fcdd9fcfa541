#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A network that is held beside its equations (reference_test.cpp), with its graph; and those with residuals and jumping knowledge.

#include "models/gnn/network/graph_network.hpp"
#include "models/plan/graph_recipe.hpp"

#include <fmt/format.h>
#include <string>
#include <vector>

namespace orthant::testing {

using models::Aggregator;
using models::Model;

struct ReferenceCase {
  std::string name;
  models::NetworkSettings settings;
  GraphRecipe recipe{.num_vertices = 61, .num_edges = 200, .num_features = 11};
};

/// Residuals of every model, with and without weights; a head and a projection around propagations.
inline std::vector<ReferenceCase> cases_of_residuals() {
  std::vector<ReferenceCase> all;
  auto const add = [&](Model model, char const* name, auto const& change) -> ReferenceCase& {
    ReferenceCase next;
    next.name = fmt::format("{}, residuals: {}", name_of(model), name);
    next.settings.dropout = 0;
    next.settings.seed = 5;
    next.settings.has_residuals = true;
    set_model(next.settings, model);
    next.settings.set_layers(3, 7);
    next.settings.num_propagations = 3;
    change(next.settings);
    all.push_back(next);
    return all.back();
  };
  auto const projects = [](auto& s) {
    s.projects_residuals = true;
    s.hidden_widths[0] = 5;
  };
  for (auto const model : {Model::gcn, Model::sage, Model::gin}) {
    add(model, "projected", projects);
    auto& sparse = add(model, "projected, sparse features, a norm, no bias", [&](auto& s) {
      projects(s);
      s.norm = models::Norm::rms;
      s.has_bias = false;
    });
    sparse.recipe.num_features = 24;
    sparse.recipe.features_per_vertex = 4;
  }
  for (auto const model : {Model::sgc, Model::appnp}) {
    add(model, "a head", [](auto& s) {
      s.has_head = true;
      s.set_layers(3, 7);
    });
    add(model, "a projection, projected", [&](auto& s) {
      s.projected_width = 7;
      projects(s);
    }).recipe.is_directed = true;
  }
  add(Model::gcnii, "a projection", [](auto& s) { s.projected_width = 7; });
  add(Model::gcnii, "projected, a norm", [](auto& s) {
    s.projects_residuals = true;
    s.norm = models::Norm::layer;
  });
  return all;
}

/// Jumping knowledge. GELU and ELU leave no equal numbers, whose maximum has no unique gradient.
inline std::vector<ReferenceCase> cases_of_jumps() {
  using models::JumpKind;
  std::vector<ReferenceCase> all;
  for (auto const& [model, jump] : {std::pair(Model::gcn, JumpKind::cat),
                                    {Model::gcn, JumpKind::max},
                                    {Model::gcn, JumpKind::mean},
                                    {Model::sage, JumpKind::max},
                                    {Model::gin, JumpKind::cat},
                                    {Model::gin, JumpKind::mean},
                                    {Model::sgc, JumpKind::cat},
                                    {Model::appnp, JumpKind::mean},
                                    {Model::gcnii, JumpKind::max},
                                    {Model::gcnii, JumpKind::cat}}) {
    ReferenceCase next;
    next.name = fmt::format("{}, jump {}", name_of(model), name_of(jump));
    next.settings.dropout = 0;
    next.settings.seed = 5;
    next.settings.jump = jump;
    next.settings.has_head = true;
    next.settings.has_residuals = model != Model::sage;
    next.settings.activation = model == Model::gin ? models::Activation::relu : models::Activation::elu;
    set_model(next.settings, model);
    next.settings.set_layers(3, 7);
    next.settings.num_propagations = 3;
    next.recipe.is_directed = jump != JumpKind::mean;
    all.push_back(next);
  }
  return all;
}

} // namespace orthant::testing
