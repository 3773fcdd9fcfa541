#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Steps of networks with residuals, with and without weights, and with jumping knowledge, of models that can lie on planes.

#include "models/gnn/network/graph_network.hpp"
#include "models/plan/graph_recipe.hpp"

#include <fmt/format.h>
#include <string>

namespace orthant::testing {

/// `add(name, change)` returns the new case.
template<class Add>
void add_residual_cases(Add const& add, GraphRecipe const& sparse) {
  auto const add_residual = [&](models::Model model, std::string const& name, auto const& change) -> auto& {
    return add(fmt::format("{}, {}", name_of(model), name), [&](auto& s) {
      s.has_residuals = true;
      s.num_propagations = 3;
      set_model(s, model);
      change(s);
      s.set_layers(3, 9);
    });
  };
  auto const projects = [](auto& s) { s.projects_residuals = true; };
  for (auto const model : {models::Model::gcn, models::Model::sage})
    add_residual(model, "projected residuals, dropout", [&](auto& s) {
      projects(s);
      s.dropout = 0.4;
    });
  add_residual(models::Model::gcn, "projected residuals, sparse features", projects).recipe = sparse;
  add_residual(models::Model::gcn, "projected residuals, 16-bit operands, trained features", [&](auto& s) {
    projects(s);
    s.operand_format = runtime::Wire::bf16;
    s.trains_features = true;
  });
  add_residual(models::Model::gin, "residuals, a projection, dropout", [](auto& s) {
    s.projected_width = 9;
    s.dropout = 0.4;
  });
  for (auto const model : {models::Model::sgc, models::Model::appnp, models::Model::gcnii})
    add_residual(model, "residuals, a projection, a head, a norm, dropout", [](auto& s) {
      s.projected_width = 9;
      s.has_head = true;
      s.norm = models::Norm::rms;
      s.dropout = 0.4;
    });
  for (auto const& [model, jump] : {std::pair(models::Model::gcn, models::JumpKind::cat),
                                    {models::Model::gcn, models::JumpKind::max},
                                    {models::Model::gcnii, models::JumpKind::mean},
                                    {models::Model::gin, models::JumpKind::cat}})
    add_residual(model, fmt::format("jump {}, dropout", name_of(jump)), [&](auto& s) {
      s.has_head = true;
      s.jump = jump;
      s.dropout = 0.4;
    });
}

} // namespace orthant::testing
