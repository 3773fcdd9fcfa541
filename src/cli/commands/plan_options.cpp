// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/plan_options.hpp"

#include "cli/options/counts.hpp"
#include "cli/training/train_run.hpp"
#include "models/plan/choose_schedule.hpp"

#include <algorithm>
#include <fmt/ranges.h>

namespace orthant::cli {

graph::StoreFacts facts_of_counts(PlanOptions const& o) {
  if (o.vertices == 0 || o.nonzeros == 0 || o.widths.empty())
    runtime::throw_user("plan: give either --graph graph.h5 or --vertices N, --nonzeros M and --widths "
                        "100-128-128-47");
  if (o.nonzeros < o.vertices)
    runtime::throw_user("--nonzeros {}: A^ has a self loop of each of the {} vertices, so it has no fewer",
                        o.nonzeros, o.vertices);
  if (o.normalize != "auto" || o.self_loops != "auto")
    runtime::throw_user(
        "plan: --normalize and --self-loops are for a graph; give --graph, or leave them out");
  graph::StoreFacts facts;
  facts.num_vertices = o.vertices;
  facts.num_entries = o.nonzeros - o.vertices;
  facts.is_symmetric = o.symmetric != "no";
  facts.feature_kind = graph::FeatureKind::dense;
  facts.label_kind = graph::LabelKind::single;
  if (auto const of_model =
          models::traits_of(models::parse_model(o.model), models::parse_aggregator(o.aggregator))
              .graph_operator) {
    facts.normalization = of_model->normalization;
    facts.other_self_loops = of_model->self_loops;
  }
  return facts;
}

graph::GraphStore open_store(runtime::Communicator const& world, PlanOptions const& o) {
  if (o.vertices > 0 || o.nonzeros > 0)
    runtime::throw_user("plan: --graph has the counts of its graph; leave out --vertices and --nonzeros");
  if (!o.symmetric.empty())
    runtime::throw_user("plan: --graph knows whether its graph is symmetric; leave out --symmetric");
  auto store = graph::GraphStore::open(world, o.graph);
  std::ignore = models::plan_gcn(store, models::GcnSettings{}); // refuses a graph to train nothing on
  models::GcnSettings asked;
  models::choose_operator(asked, o.normalize, o.self_loops);
  set_model(asked, o);
  models::use_operator(store, asked);
  return store;
}

std::vector<std::int64_t> widths_of(graph::StoreFacts const& facts, PlanOptions const& o) {
  if (o.widths.empty() && o.model == "sgc") return {facts.num_features, facts.num_classes};
  if (o.widths.empty()) return {facts.num_features, 128, 128, facts.num_classes};
  auto widths = parse_widths(o.widths);
  if (!o.graph.empty() && (widths.front() != facts.num_features || widths.back() != facts.num_classes))
    runtime::throw_user("--widths {}: the graph has {} features and {} classes", o.widths, facts.num_features,
                        facts.num_classes);
  return widths;
}

models::GcnSettings settings_of(std::vector<std::int64_t> const& widths, PlanOptions const& o) {
  models::GcnSettings settings;
  set_model(settings, o);
  settings.hidden_widths.assign(widths.begin() + 1, widths.end() - 1);
  if (settings.model == models::Model::gin && settings.hidden_widths.empty())
    runtime::throw_user(
        "--widths {}: gin has a linear layer behind its hidden ones; name a hidden width, too",
        fmt::join(widths, "-"));
  settings.norm = models::parse_norm(o.norm);
  settings.has_residuals = o.residual;
  settings.dropout = o.dropout;
  settings.edge_dropout = o.edge_dropout;
  settings.trains_features = o.trainable_features;
  settings.wire = wire_of(o.comm_dtype);
  settings.operand_format = wire_of(o.operand_dtype);
  return settings;
}

std::string flags_of_graph(PlanOptions const& o, models::GcnSettings const& settings) {
  auto flags = "--graph " + (o.graph.empty() ? "GRAPH.h5" : o.graph);
  for (auto const& [flag, value, standard] : {std::tuple("--norm", o.norm, "none"),
                                              {"--model", o.model, "gcn"},
                                              {"--aggregator", o.aggregator, "mean"},
                                              {"--activation", o.activation, "relu"},
                                              {"--normalize", o.normalize, "auto"},
                                              {"--self-loops", o.self_loops, "auto"},
                                              {"--comm-dtype", o.comm_dtype, "fp32"},
                                              {"--operand-dtype", o.operand_dtype, "fp32"}})
    if (value != standard) flags += fmt::format(" {} {}", flag, value);
  if (o.propagation_steps) flags += fmt::format(" --propagation-steps {}", *o.propagation_steps);
  GraphModelOptions const standard;
  if (o.teleport != standard.teleport) flags += fmt::format(" --teleport {}", o.teleport);
  if (o.theta != standard.theta) flags += fmt::format(" --theta {}", o.theta);
  if (models::weighs_neighbours(settings))
    flags += fmt::format(" --heads {} --output-heads {}", o.heads, o.output_heads);
  if (o.residual) flags += " --residual";
  if (o.trainable_features) flags += " --trainable-features";
  if (o.dropout != default_dropout) flags += fmt::format(" --dropout {}", o.dropout);
  if (o.edge_dropout > 0) flags += fmt::format(" --edge-dropout {}", o.edge_dropout);
  auto const& hidden = settings.hidden_widths;
  auto const is_even = std::ranges::adjacent_find(hidden, std::ranges::not_equal_to{}) == hidden.end();
  if (!is_even) return flags + " ...   (train takes one --hidden for all layers)";
  if (o.model != "sgc") flags += fmt::format(" --layers {}", settings.num_layers());
  if (!hidden.empty()) flags += fmt::format(" --hidden {}", hidden.front());
  return flags;
}

std::vector<models::Schedule> schedules_of(PlanOptions const& o) {
  models::GcnSettings settings;
  settings.model = models::parse_model(o.model);
  settings.aggregator = models::parse_aggregator(o.aggregator);
  auto const word = models::open_schedules(settings, o.schedule);
  if (word == "all") return {models::Schedule::pmm3d, models::Schedule::rows};
  return {models::parse_schedule(word)};
}

} // namespace orthant::cli
