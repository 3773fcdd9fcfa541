#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Networks and graphs on which a pruned training is held against one on all rows.

#include "models/plan/relation_cases.hpp"

#include <string>
#include <utility>
#include <vector>

namespace orthant::testing {

/// The models besides GCN, and dropped edges.
template<class Add>
void add_models(Add const& add) {
  using models::Aggregator;
  using models::Model;
  auto const same = [](auto&) {};
  auto const is_directed = [](auto& g) { g.is_directed = true; };
  add(
      "sage, dropped edges",
      [](auto& s) {
        set_model(s, Model::sage);
        s.has_residuals = true;
        s.dropout = s.edge_dropout = 0.4;
      },
      is_directed);
  add(
      "sage sum, transform first, layer norm, head",
      [](auto& s) {
        set_model(s, Model::sage, Aggregator::sum);
        s.order = models::ProductOrder::transform_first;
        s.norm = models::Norm::layer;
        s.has_head = true;
      },
      is_directed);
  add(
      "sage max, projection, dropout",
      [](auto& s) {
        set_model(s, Model::sage, Aggregator::max);
        s.projected_width = 9;
        s.dropout = 0.4;
      },
      is_directed);
  for (auto const order : {models::ProductOrder::aggregate_first, models::ProductOrder::transform_first})
    add(
        order == models::ProductOrder::aggregate_first ? "gin" : "gin, transform first",
        [&](auto& s) {
          set_model(s, Model::gin);
          s.order = order;
          s.norm = models::Norm::rms;
          s.dropout = 0.4;
        },
        same);
  for (auto const model : {Model::gat, Model::gatv2})
    add(
        std::string(name_of(model)),
        [&](auto& s) {
          s.num_heads = 3;
          s.num_output_heads = 2;
          set_model(s, model);
          s.has_residuals = true;
          s.dropout = s.attention_dropout = 0.4;
        },
        is_directed);
  for (auto const model : {Model::gat, Model::gatv2})
    add(
        std::string(name_of(model)) + ", features of edges",
        [&](auto& s) {
          s.num_heads = 3;
          set_model(s, model);
          s.dropout = s.attention_dropout = s.edge_dropout = 0.4;
        },
        [](auto& g) {
          g.is_directed = true;
          g.num_edges = 500; // to the next two vertices of a ring
          g.num_edge_features = 5;
          g.train_every = 40;
        });
  add(
      "gatv2, head, trained and projected features",
      [](auto& s) {
        s.num_heads = 3;
        set_model(s, Model::gatv2);
        s.has_head = s.trains_features = true;
        s.projected_width = 9;
      },
      same);
  for (auto const model : {Model::sgc, Model::appnp, Model::gcnii})
    add(
        std::string(name_of(model)),
        [&](auto& s) {
          set_model(s, model);
          s.set_layers(model == Model::sgc ? 1 : 3, 9);
          s.num_propagations = 12; // the last ones read all that they can reach, with one block
          s.dropout = s.edge_dropout = 0.4;
        },
        [](auto& g) { g.num_edges = 90; });
  add(
      "dropped edges, needed rows",
      [](auto& s) {
        s.edge_dropout = 0.4;
        s.gather = pmm::Gather::needed;
      },
      same);
}

/// Relations: full weights and bases, and GraphSAGE with types of vertices, roots and a table.
template<class Add>
void add_relations(Add const& add) {
  for (auto const& of : relation_cases()) {
    if (of.settings.schedule != models::Schedule::rows || of.settings.wire != runtime::Wire::native) continue;
    add(
        of.name, [&](auto& s) { s = of.settings; },
        [&](auto& g) {
          g.is_directed = true;
          g.num_relations = of.recipe->num_relations;
          g.has_types = of.recipe->has_types;
        });
  }
}

/// Graphs of few neighbors, so that layers keep a part of the rows.
inline std::vector<StepCase> prune_cases() {
  std::vector<StepCase> all;
  GraphRecipe const graph{.num_vertices = 203, .num_edges = 150, .num_features = 13, .train_every = 11};
  auto const add = [&](std::string name, auto const& change_settings, auto const& change_graph) {
    StepCase next;
    next.name = std::move(name);
    next.settings.schedule = models::Schedule::rows;
    next.settings.set_layers(3, 9);
    next.settings.dropout = 0;
    next.settings.seed = 11;
    change_settings(next.settings);
    next.settings.set_layers(next.settings.num_layers(), 9);
    next.recipe = graph;
    change_graph(*next.recipe);
    all.push_back(std::move(next));
  };
  auto const same = [](auto&) {};
  auto const with_all_parts = [](auto& s) {
    s.norm = models::Norm::rms;
    s.has_residuals = s.has_head = true;
    s.projected_width = 9;
    s.dropout = 0.4;
  };
  auto const is_directed = [](auto& g) { g.is_directed = true; };
  add("plain", same, same);
  add(
      "dropout", [](auto& s) { s.dropout = 0.4; }, same);
  add(
      "norm, aggregate first",
      [](auto& s) {
        s.norm = models::Norm::rms;
        s.order = models::ProductOrder::aggregate_first;
      },
      same);
  add(
      "residual, transform first",
      [](auto& s) {
        s.has_residuals = true;
        s.dropout = 0.4;
        s.order = models::ProductOrder::transform_first;
      },
      same);
  add("all parts, directed", with_all_parts, is_directed);
  add(
      "no self loops, several classes per vertex, residual", [](auto& s) { s.has_residuals = true; },
      [](auto& g) {
        g.normalization = graph::Normalization::none;
        g.labels = graph::LabelKind::multi;
        g.is_directed = true;
      });
  add(
      "trained features, directed",
      [](auto& s) {
        s.trains_features = true;
        s.dropout = 0.4;
      },
      is_directed);
  add(
      "trained features, all parts",
      [&](auto& s) {
        with_all_parts(s);
        s.trains_features = true;
      },
      same);
  add(
      "needed rows, directed, weighted, one order", [](auto& s) { s.gather = pmm::Gather::needed; },
      [](auto& g) {
        g.is_directed = g.is_weighted = true;
        g.normalization = graph::Normalization::row;
        g.permutation = graph::PermutationKind::single;
      });
  auto const with_sparse_features = [](auto& g) {
    g.num_features = 40;
    g.features_per_vertex = 4;
  };
  add(
      "sparse features",
      [](auto& s) {
        s.dropout = 0.4;
        s.feature_norm = models::FeatureNorm::row;
      },
      with_sparse_features);
  add(
      "a pattern of features, projection", [](auto& s) { s.projected_width = 9; },
      [&](auto& g) {
        with_sparse_features(g);
        g.has_feature_values = false;
      });
  add("three training vertices", with_all_parts, [](auto& g) { g.train_every = 101; });
  add(
      "two layers, one training vertex",
      [](auto& s) {
        s.set_layers(2, 9);
        s.gather = pmm::Gather::needed;
      },
      [](auto& g) { g.train_every = 1000; });
  add_models(add);
  add_relations(add);
  add(
      "focal loss",
      [](auto& s) {
        s.trains_entries = true;
        s.dropout = 0.4;
      },
      same);
  add(
      "everything trains", [](auto& s) { s.has_residuals = true; }, [](auto& g) { g.train_every = 1; });
  return all;
}

} // namespace orthant::testing
