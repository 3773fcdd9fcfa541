#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Networks and graphs on which lists of a step are held against real ones, and what such a list cannot know
// from layouts.

#include "models/gnn/plan/network_step.hpp"
#include "models/models_fixture.hpp"
#include "models/plan/counted_work.hpp"
#include "models/plan/graph_recipe.hpp"
#include "models/plan/residual_cases.hpp"
#include "models/training/trainer.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace orthant::testing {

struct StepCase {
  std::string name;
  models::NetworkSettings settings = {};
  std::string dataset = "sbm:vertices=203,edges=900,features=13,classes=5";
  std::optional<GraphRecipe> recipe = {}; // in place of the data set

  /// All but SGC of sparse features.
  [[nodiscard]] bool has_dense_products() const {
    return settings.model != models::Model::sgc || !recipe || recipe->features_per_vertex == 0;
  }

  [[nodiscard]] graph::GraphStore store(runtime::Communicator const& comm) const {
    auto made = recipe ? store_of(comm, *recipe) : store_of_dataset(comm, dataset);
    auto with_operator = settings;
    models::use_operator(made, with_operator);
    return made;
  }

  /// A focal loss with smoothed labels if the settings say that entries are trained.
  [[nodiscard]] models::VertexLossSettings loss() const {
    if (!settings.trains_entries) return {};
    return {.label_smoothing = 0.1, .function = models::LossFunction::focal};
  }
};

inline std::vector<StepCase> step_cases() {
  std::vector<StepCase> all;
  auto const add = [&](std::string name, auto const& change) -> StepCase& {
    StepCase next;
    next.name = std::move(name);
    next.settings.set_layers(3, 9);
    next.settings.dropout = 0;
    change(next.settings);
    next.settings.set_layers(next.settings.num_layers(), 9);
    all.push_back(std::move(next));
    return all.back();
  };
  auto const as_it_is = [](auto&) {};
  auto const with_all_parts = [](auto& s) {
    s.norm = models::Norm::rms;
    s.has_residuals = s.has_head = s.trains_features = true;
    s.projected_width = 9;
  };
  add("plain", as_it_is);
  add("focal loss", [](auto& s) { s.trains_entries = true; });
  add("dropout", [](auto& s) { s.dropout = 0.4; });
  // Narrower than H of later layers, in whose place they lie until A^ F0 is there.
  for (auto const format : {runtime::Wire::native, runtime::Wire::bf16})
    add(format == runtime::Wire::native ? "few features" : "few features, 16-bit operands", [&](auto& s) {
      s.order = models::ProductOrder::aggregate_first;
      s.operand_format = format;
    }).dataset = "sbm:vertices=203,edges=900,features=7,classes=5";
  add("no bias, no overlap", [](auto& s) { s.has_bias = s.overlaps = false; });
  add("transform first", [](auto& s) { s.order = models::ProductOrder::transform_first; });
  add("trained features", [](auto& s) { s.trains_features = true; });
  add("16-bit wire", [](auto& s) { s.wire = runtime::Wire::bf16; });
  add("8-bit wire", [](auto& s) { s.wire = runtime::Wire::int8; });
  add("16-bit operands", [](auto& s) { s.operand_format = runtime::Wire::bf16; });
  add("16-bit operands and wire, transform first", [](auto& s) {
    s.order = models::ProductOrder::transform_first;
    s.operand_format = runtime::Wire::fp16;
    s.wire = runtime::Wire::bf16;
    s.trains_features = true;
  });
  add("directed", as_it_is).dataset += ",directed=1";
  for (auto const order : {models::ProductOrder::aggregate_first, models::ProductOrder::transform_first}) {
    auto& parts = add("all parts", with_all_parts);
    parts.settings.order = order;
    if (order == models::ProductOrder::transform_first) parts.name += ", transform first";
  }
  add("residual and dropout", [](auto& s) {
    s.has_residuals = true;
    s.dropout = 0.4;
  });
  add("fewer vertices than ranks", [](auto& s) { s.norm = models::Norm::rms; }).dataset =
      "ring:vertices=5,features=1,classes=2";

  GraphRecipe const sparse{
      .num_vertices = 203, .num_edges = 900, .num_features = 40, .features_per_vertex = 4};
  add("sparse features", [](auto& s) {
    s.dropout = 0.4;
    s.feature_norm = models::FeatureNorm::row;
  }).recipe = sparse;
  auto pattern = sparse;
  pattern.has_feature_values = false;
  pattern.is_weighted = true;
  pattern.normalization = graph::Normalization::row;
  add("a pattern of features, projection, weights, one order", [](auto& s) {
    s.projected_width = 9;
    s.has_residuals = true;
  }).recipe = pattern;
  all.back().recipe->permutation = graph::PermutationKind::single;
  GraphRecipe several{.num_vertices = 203, .num_edges = 900, .num_features = 13};
  several.labels = graph::LabelKind::multi;
  several.normalization = graph::Normalization::none;
  add("several classes per vertex", as_it_is).recipe = several;
  auto numbers = several;
  numbers.labels = graph::LabelKind::real;
  add("targets of regression", as_it_is).recipe = numbers;

  add("sage", [](auto& s) { set_model(s, models::Model::sage); });
  add("sage, all parts, directed, transform first", [&](auto& s) {
    with_all_parts(s);
    set_model(s, models::Model::sage, models::Aggregator::sum);
    s.order = models::ProductOrder::transform_first;
  }).dataset += ",directed=1";
  add("sage, sparse features, dropout and residuals", [](auto& s) {
    set_model(s, models::Model::sage);
    s.has_residuals = true;
    s.dropout = 0.4;
  }).recipe = sparse;

  add("gin", [](auto& s) { set_model(s, models::Model::gin); });
  add("gin, norm, silu, projection, dropout, trained features", [](auto& s) {
    set_model(s, models::Model::gin);
    s.norm = models::Norm::rms;
    s.activation = models::Activation::silu;
    s.projected_width = 9;
    s.dropout = 0.4;
    s.trains_features = true;
  }).dataset += ",directed=1";
  add("gin, sparse features, transform first", [](auto& s) {
    set_model(s, models::Model::gin);
    s.order = models::ProductOrder::transform_first;
  }).recipe = sparse;

  for (auto const model : {models::Model::sage, models::Model::gin, models::Model::appnp})
    add(std::string(name_of(model)) + ", trained features, dropout", [&](auto& s) {
      s.trains_features = true;
      s.dropout = 0.4;
      if (model == models::Model::gin) s.order = models::ProductOrder::aggregate_first;
      set_model(s, model);
      s.num_propagations = 2;
    });

  auto const add_attention = [&](std::string name, models::Model model, auto const& change) -> StepCase& {
    return add(std::move(name), [&](auto& s) {
      s.num_heads = 3;
      set_model(s, model);
      change(s);
    });
  };

  add("elu, residual and dropout", [](auto& s) {
    s.activation = models::Activation::elu;
    s.has_residuals = true;
    s.dropout = 0.4;
  });
  add("gelu, no bias", [](auto& s) {
    s.activation = models::Activation::gelu;
    s.has_bias = false;
  });

  for (auto const norm : {models::Norm::layer, models::Norm::batch}) {
    auto const name = std::string(name_of(norm)) + " norm";
    add(name + ", dropout", [&](auto& s) {
      s.norm = norm;
      s.dropout = 0.4;
    });
    add(name + ", elu, residual, dropout, head, directed", [&](auto& s) {
      s.norm = norm;
      s.activation = models::Activation::elu;
      s.has_residuals = s.has_head = true;
      s.dropout = 0.4;
    }).dataset += ",directed=1";
    add(name + ", residual and dropout, no bias", [&](auto& s) {
      s.norm = norm;
      s.has_bias = false;
      s.has_residuals = true;
      s.dropout = 0.4;
    });
    add(name + ", fewer vertices than ranks", [&](auto& s) { s.norm = norm; }).dataset =
        "ring:vertices=5,features=1,classes=2";
  }

  add("dropped edges", [](auto& s) { s.edge_dropout = 0.4; });
  auto& dropped = add("dropped edges of a directed graph with weights, dropout", [](auto& s) {
    s.edge_dropout = 0.4;
    s.dropout = 0.4;
  });
  dropped.recipe =
      GraphRecipe{.num_vertices = 203, .num_edges = 900, .is_directed = true, .is_weighted = true};

  for (auto const model : {models::Model::sgc, models::Model::appnp, models::Model::gcnii}) {
    add(std::string(name_of(model)), [&](auto& s) {
      set_model(s, model);
      s.set_layers(model == models::Model::sgc ? 1 : 2, 9);
      s.num_propagations = 3;
    });
    add(std::string(name_of(model)) + ", sparse features, dropout", [&](auto& s) {
      set_model(s, model);
      s.set_layers(model == models::Model::sgc ? 1 : 3, 9);
      s.num_propagations = 4;
      s.dropout = 0.4;
    }).recipe = sparse;
  }
  add("gcnii, a norm, directed, dropout", [](auto& s) {
    set_model(s, models::Model::gcnii);
    s.set_layers(7, 9);
    s.norm = models::Norm::rms;
    s.dropout = 0.4;
  }).dataset += ",directed=1";

  add_residual_cases(add, sparse);

  auto const between_planes = all;
  for (auto next : between_planes) {
    next.name += ", between owners";
    next.settings.schedule = models::Schedule::rows;
    all.push_back(std::move(next));
  }
  add_attention("gat", models::Model::gat, [](auto& s) { s.activation = models::Activation::elu; });
  add_attention("gat, means of heads, sparse features, dropout and residuals", models::Model::gat,
                [](auto& s) {
                  s.num_output_heads = 2;
                  s.has_residuals = true;
                  s.dropout = s.attention_dropout = 0.4;
                })
      .recipe = sparse;
  add_attention("gatv2, directed, norm, projection, head, dropout of coefficients", models::Model::gatv2,
                [](auto& s) {
                  s.norm = models::Norm::rms;
                  s.has_head = s.trains_features = true;
                  s.projected_width = 9;
                  s.attention_dropout = 0.4;
                })
      .dataset += ",directed=1";
  add_attention("gatv2, means of heads, trained features", models::Model::gatv2, [](auto& s) {
    s.num_output_heads = 3;
    s.trains_features = true;
  });
  add_attention("gat, 8-bit wire", models::Model::gat, [](auto& s) { s.wire = runtime::Wire::fp8; });
  add_attention("transformer, means", models::Model::transformer, [](auto& s) { s.num_output_heads = 3; });
  for (auto const model : {models::Model::gat, models::Model::transformer})
    add_attention(std::string(name_of(model)) + ", dropouts, weights that are ignored", model, [](auto& s) {
      s.dropout = s.attention_dropout = s.edge_dropout = 0.4;
    }).recipe = GraphRecipe{.num_vertices = 203, .num_edges = 900, .is_directed = true, .is_weighted = true};
  for (auto const model : {models::Model::gat, models::Model::gatv2})
    add_attention(std::string(name_of(model)) + ", features of edges, dropouts", model, [](auto& s) {
      s.dropout = s.attention_dropout = s.edge_dropout = 0.4;
    }).recipe = GraphRecipe{.num_vertices = 203, .num_edges = 900, .num_edge_features = 5};
  for (auto const schedule : {models::Schedule::pmm3d, models::Schedule::rows})
    add("sage max, dropped edges, sparse features", [&](auto& s) {
      s.schedule = schedule;
      s.edge_dropout = 0.4;
      set_model(s, models::Model::sage, models::Aggregator::max);
    }).recipe = sparse;
  add("tag, sparse features, dropout", [](auto& s) {
    s.dropout = 0.4;
    set_model(s, models::Model::tag);
  }).recipe = sparse;

  for (auto const& [has_parts, schedule] : {std::pair(false, models::Schedule::rows),
                                            {true, models::Schedule::rows},
                                            {false, models::Schedule::pmm3d},
                                            {true, models::Schedule::pmm3d}}) {
    auto& next = add(has_parts ? "sage max, directed, all parts, dropout" : "sage max", [&](auto& s) {
      s.schedule = schedule;
      s.norm = has_parts ? models::Norm::rms : models::Norm::none;
      s.has_residuals = s.has_head = has_parts;
      s.trains_features = has_parts || schedule == models::Schedule::pmm3d;
      s.projected_width = has_parts ? 9 : 0;
      s.dropout = has_parts ? 0.4 : 0;
      s.wire =
          has_parts ? runtime::Wire::native : runtime::Wire::bf16; // cases with residuals also run in fp64
      set_model(s, models::Model::sage, models::Aggregator::max);
      s.hidden_axes = pmm::group_axes;
    });
    if (has_parts) next.dataset += ",directed=1";
  }
  auto const waiting = all;
  for (auto next : waiting) {
    if (next.name != "8-bit wire, between owners" && next.name != "16-bit operands, between owners" &&
        next.name != "directed, between owners" && next.name != "all parts, between owners")
      continue;
    next.name += ", messages hidden";
    next.settings.hidden_axes = pmm::group_axes;
    all.push_back(std::move(next));
  }
  return all;
}

template<class T>
std::int64_t num_nonzeros_of(models::Adjacency<T> const& adjacency) {
  if (auto const* const owned = std::get_if<models::OwnedAdjacency<T>>(&adjacency))
    return owned->forward.block().csr.num_nonzeros();
  return *num_nonzeros_of(std::get<pmm::DistSparse<T>>(adjacency));
}

/// The blocks' non-zeros, where residuals go, and which rows move between owners.
template<class T>
models::NetworkEpochTraits
traits_of_operands(graph::GraphStore const& store, models::NetworkSettings const& settings,
                   models::NetworkOperands<T> const& operands, pmm::ProcessGrid const& grid) {
  auto traits = models::traits_of(store.facts(), grid.shape(), grid.coordinates(), operands.plan, settings);
  traits.num_nonzeros = [&](pmm::Placement const& placement) -> std::int64_t {
    for (std::size_t l = 0; l < operands.adjacency.size(); ++l)
      if (operands.plan.layers[l].adjacency == placement)
        return operands.relations.empty()    ? num_nonzeros_of(operands.adjacency[l])
               : operands.relations[l].edges ? operands.relations[l].edges->counts().edges
                                             : operands.relations[l].block->num_entries() -
                                                   operands.relations[l].block->num_self_pairs();
    return operands.features.is_sparse ? *num_nonzeros_of(operands.features.sparse) : 0;
  };
  traits.num_pairs = [&](pmm::Placement const& placement) -> std::int64_t {
    for (std::size_t l = 0; l < operands.relations.size(); ++l)
      if (auto const& block = operands.relations[l].block;
          block && operands.plan.layers[l].adjacency == placement)
        return block->num_pairs() - block->num_self_pairs();
    return 0;
  };
  traits.num_self_pairs = [&](pmm::Placement const& placement) -> models::NetworkEpochTraits::SelfPairs {
    for (std::size_t l = 0; l < operands.relations.size(); ++l)
      if (auto const& block = operands.relations[l].block;
          block && operands.plan.layers[l].adjacency == placement)
        return {block->num_self_pairs(), block->num_root_pairs()};
    return {};
  };
  traits.num_relation_edges = [&](pmm::Placement const&) {
    auto const has_edges = !operands.relations.empty() && operands.relations.front().edges;
    return has_edges ? operands.relations.front().edges->counts() : pmm::RelationEdgeCounts{};
  };
  traits.residual_sizes = [&](models::NetworkLayerPlan const& layer, bool is_backward) {
    auto const path = operands.residual(static_cast<std::size_t>(layer.index));
    return (is_backward ? path.backward : path.forward)->sizes();
  };
  traits.self_sizes = [&](models::NetworkLayerPlan const& layer, bool is_backward) {
    auto const path = operands.self_path(static_cast<std::size_t>(layer.index));
    return (is_backward ? path.backward : path.forward)->sizes();
  };
  traits.teleport_sizes = [&](models::NetworkPlan const& plan, pmm::Placement const& site, bool is_backward) {
    auto const& sites = plan.teleport.value().sites;
    auto const& path =
        operands.teleport_paths.at(static_cast<std::size_t>(std::ranges::find(sites, site) - sites.begin()));
    return (is_backward ? path.backward : path.forward)->sizes();
  };
  traits.jump_sizes = [&](models::NetworkPlan const&, std::size_t k, bool is_backward) {
    return (is_backward ? operands.jump_paths.at(k).backward : operands.jump_paths.at(k).forward)->sizes();
  };
  auto const* const owned = std::get_if<models::OwnedAdjacency<T>>(&operands.adjacency.front());
  if (owned != nullptr) traits.cells = owned->sizes;
  if (!operands.relations.empty() && operands.plan.layers.front().owners)
    traits.cells = operands.relations.front().sizes;
  if (owned != nullptr && owned->needed) traits.needed = owned->needed->counts();
  if (auto const& rows = operands.features.rows)
    traits.own_features = rows->counts.at(
        static_cast<std::size_t>(grid.coordinate(operands.plan.trained_features->shards.layout.third())));
  return traits;
}

/// Trains two epochs of the full graph, and expects what is listed of the second.
template<class T>
void expect_listed_epoch(pmm::ProcessGrid const& grid, StepCase const& the_case,
                         models::OptimizerSettings const& optimizer = {}) {
  auto const& settings = the_case.settings;
  auto const store = the_case.store(grid.world());
  auto const plan = models::plan_network(store, settings);
  auto const operands = models::make_full_graph_operands<T>(grid, store, plan, settings);
  auto step = step_of<T>(grid);
  models::TrainSettings training;
  // KernelLabels listens to kernels, so Kokkos waits for each of them: that cannot be recorded.
  training.uses_device_graph = false;
  training.optimizer = optimizer;
  if (settings.has_residuals) training.optimizer.kind = models::OptimizerKind::sgd;
  plan_epoch(step, plan, settings, traits_of_operands(store, settings, operands, grid), training.optimizer);
  models::GraphNetwork<T> model(grid, store, settings);
  auto loss = models::make_vertex_loss<T>(grid, store, plan.logits(), the_case.loss());
  models::Trainer<T> trainer(grid, model, loss, training);
  static_cast<void>(trainer.train_epoch(1));
  CountedWork const counted(grid);

  static_cast<void>(trainer.train_epoch(2));

  counted.expect_listed(step, the_case.has_dense_products());
  // Of a block without rows or columns kernels are launched, too, and do nothing.
  if (grid.world().size() <= 4 && the_case.name.find("fewer vertices than ranks") == std::string::npos)
    counted.expect_counted_kernels();
}

} // namespace orthant::testing
