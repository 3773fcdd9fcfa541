#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Cases of step_cases.hpp on a graph with relations.

#include "models/plan/step_cases.hpp"

#include <string>
#include <vector>

namespace orthant::testing {

/// Networks on a graph with relations, in both schedules.
inline std::vector<StepCase> relation_cases() {
  std::vector<StepCase> all;
  auto const add = [&](std::string name, auto const& change) {
    for (auto const schedule : {models::Schedule::pmm3d, models::Schedule::rows}) {
      StepCase next;
      next.name = name + ", " + std::string(name_of(schedule));
      set_model(next.settings, models::Model::rgcn);
      next.settings.set_layers(3, 9);
      next.settings.dropout = 0;
      next.settings.schedule = schedule;
      next.recipe = GraphRecipe{
          .num_vertices = 203, .num_edges = 900, .num_features = 13, .is_directed = true, .num_relations = 5};
      change(next.settings);
      all.push_back(std::move(next));
    }
  };
  add("full weights", [](auto&) {});
  add("bases, norm, residuals, dropout, trained features", [](auto& s) {
    s.num_bases = 2;
    s.norm = models::Norm::rms;
    s.has_residuals = s.trains_features = true;
    s.dropout = 0.4;
  });
  add("blocks, no bias, 16-bit wire", [](auto& s) {
    s.num_blocks = 3;
    s.has_bias = false;
    s.wire = runtime::Wire::bf16;
  });
  add("8-bit wire", [](auto& s) { s.wire = runtime::Wire::int8; });
  for (auto const schedule : {models::Schedule::pmm3d, models::Schedule::rows})
    for (auto const model : {models::Model::rgcn, models::Model::rsage}) {
      StepCase next = all.front();
      next.settings.model = model;
      auto const has_bases = model == models::Model::rgcn;
      next.name = std::string("types of vertices and a table, ") + std::string(name_of(schedule));
      next.settings.schedule = schedule;
      next.settings.num_bases = has_bases ? 2 : 0;
      next.settings.has_bias = !has_bases;
      next.recipe->has_types = true;
      next.settings.trains_features = true; // as use_operator() finds
      next.settings.num_fixed_rows = 83;
      next.settings.num_roots = 3;
      all.push_back(std::move(next));
    }
  for (auto const has_targets : {false, true}) {
    StepCase next;
    next.name = has_targets ? "R-GAT, targets, dropout, norm, residuals" : "R-GAT, no bias, 16-bit wire";
    next.settings.schedule = models::Schedule::rows;
    set_model(next.settings, models::Model::rgat);
    next.settings.num_heads = 3;
    next.settings.set_layers(3, 9);
    next.settings.dropout = 0;
    next.recipe = all.front().recipe;
    if (has_targets) {
      next.settings.has_target_weights = next.settings.has_residuals = true;
      next.settings.dropout = 0.4;
      next.settings.attention_dropout = 0.3;
      next.settings.norm = models::Norm::rms;
      next.recipe->has_types = true;
      next.settings.trains_features = true; // as use_operator() finds
      next.settings.num_fixed_rows = 83;
    } else {
      next.settings.has_bias = false;
      next.settings.wire = runtime::Wire::bf16;
    }
    next.settings.num_roots = 5;
    all.push_back(std::move(next));
  }
  return all;
}

} // namespace orthant::testing
