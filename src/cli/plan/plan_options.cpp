// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/plan_options.hpp"

#include "cli/options/option_text.hpp"
#include "cli/training/start_checks.hpp"
#include "cli/training/train_modes.hpp"
#include "cli/training/train_settings.hpp"
#include "graph/graph_source.hpp"
#include "models/gnn/network/grid_choice.hpp"

#include <algorithm>
#include <array>
#include <fmt/ranges.h>

namespace orthant::cli {
namespace {

constexpr std::int64_t most_columns = std::int64_t{1} << 20;
constexpr std::int64_t most_ranks = std::int64_t{1} << 20;

/// Options of train that a plan depends on, and groups of which it uses all options.
constexpr std::array<std::string_view, 26> used_by_plan{
    "split",        "Model",      "Mini-batch",     "graph",         "dataset",    "mode",          "task",
    "loss",         "grid",       "machine",        "preset",        "optimizer",  "seed",          "overlap",
    "order",        "eval-every", "schedule",       "compute-dtype", "comm-dtype", "operand-dtype", "gather",
    "force-memory", "moments",    "jorge-interval", "jorge-tile",    "precision"};

bool is_of_counts(PlanOptions const& o) {
  return o.graph.empty() && o.dataset.empty();
}

/// Sets --layers and --hidden from --widths.
void take_widths(Context const& context, PlanOptions& o) {
  auto const widths = parse_widths(o.widths);
  auto const& sources = context.run_record.at("sources");
  for (auto const* const option : {"layers", "hidden"})
    if (auto const source = sources.value(option, std::string("default"));
        source != "default" && source != "preset")
      runtime::throw_user("--widths {} has the widths of all layers: leave out --{}", o.widths, option);
  auto const num_hidden = std::ssize(widths) - 2;
  auto const has_head = o.head || o.jump != "none" || o.model == "gin" || o.model == "gcnii";
  if (has_head && num_hidden == 0)
    runtime::throw_user("--widths {}: {} has a linear layer behind its hidden ones; name a hidden width, too",
                        o.widths, o.head ? "a network with --head" : o.model);
  o.layers = num_hidden + (has_head ? 0 : 1);
  if (num_hidden > 0) o.hidden = widths[1];
}

} // namespace

void add_options(Command& command, PlanOptions& o) {
  add_preset_option(command, o);
  add_options(command, static_cast<TrainOptions&>(o));
  command.read_table_of("train");
  command.pass_over_all_but(used_by_plan);
  auto const is_full = [&o] { return o.mode == "full"; };
  command.pass_over("seed", is_full);
  command.pass_over("eval-every", is_full);
  command.pass_over("metrics", [] { return true; });
  for (auto const* const option : {"trace", "force"})
    command.pass_over(option, [&o] { return !o.simulation.simulate; });

  command.begin_group("Planning");
  command.option("--vertices", o.vertices, "Number of vertices, for a graph that is given by its counts",
                 whole_number(1, graph::most_vertices));
  command.option("--nonzeros", o.nonzeros, "Number of non-zeros of A^, with one self loop per vertex",
                 whole_number(1, graph::most_edges));
  command.option("--symmetric", o.symmetric, "Whether A is symmetric: yes or no", one_of({"yes", "no"}));
  command.option(
      "--widths", o.widths,
      "Widths from features to classes, such as 100-128-128-47, in place of --layers and --hidden");
  add_ranks_option(command, o.ranks, most_ranks);
  command.option(
      "--least-width", o.least_width,
      "Smallest number of columns per rank in the widest aggregation; grids with fewer columns are "
      "not considered",
      whole_number(1, most_columns));
  command.flag("--exact", o.exact,
               "Count the bytes of the mini-batches of epoch 1 exactly, on every rank; default: estimate "
               "them from a mean batch");
  add_simulation_options(command, o.simulation, "an epoch on the best grid of each schedule");
  command.option("--top", o.top, "Grids to show for each schedule", whole_number(1));
  command.flag("--arrays", o.arrays, "Also show the arrays of the best grids, summed by label");
  command.flag("--json", o.json, "Print one JSON object per grid");
}

void complete(Context& context, PlanOptions& o) {
  apply_preset(context, o);
  if (!o.widths.empty()) take_widths(context, o);
  settle_idle_options(context, o);
  require_fitting_types(o);
  require_readable_times(o, "epoch");
  if (o.mode == "full")
    std::ignore = models::with_num_steps(training_of(o), o.epochs);
  else
    std::ignore = training_of(o);
  if (o.compute_dtype != "fp32")
    runtime::throw_user("plan counts bytes and seconds of fp32: leave out --compute-dtype {}",
                        o.compute_dtype);
  if (o.exact && o.mode == "full")
    runtime::throw_user("plan: --exact is for mini-batches: give --mode minibatch, too, or leave it out");
  if (o.arrays && o.mode == "minibatch")
    runtime::throw_user("plan: --arrays is of full graphs; leave it out with --mode minibatch");
  if (o.sampler != "uniform")
    runtime::throw_user("plan knows the batches of --sampler uniform alone: leave out --sampler {}",
                        o.sampler);
}

models::NetworkSettings settings_of(PlanOptions const& o) {
  auto network = o;
  network.machine.clear(); // the network does not depend on it
  network.measure_top = 0;
  auto settings = model_of(network);
  if (o.widths.empty()) return settings;
  auto const widths = parse_widths(o.widths);
  settings.hidden_widths.assign(widths.begin() + 1, widths.end() - 1);
  return settings;
}

graph::StoreFacts facts_of_counts(PlanOptions const& o) {
  if (o.vertices == 0 || o.nonzeros == 0 || o.widths.empty())
    runtime::throw_user("plan: give either --graph graph.h5 or --vertices N, --nonzeros M and --widths "
                        "100-128-128-47, or a --dataset");
  if (o.task == "links")
    runtime::throw_user("plan: --task links is for the edges that a graph holds out; give --graph");
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
  auto const widths = parse_widths(o.widths);
  facts.num_features = widths.front();
  facts.num_classes = widths.back();
  if (auto const of_model =
          models::traits_of(models::parse_model(o.model), aggregator_of(o)).graph_operator) {
    facts.normalization = of_model->normalization;
    facts.other_self_loops = of_model->self_loops;
  }
  return facts;
}

std::optional<graph::GraphStore> open_store(Context const& context, PlanOptions const& o,
                                            models::NetworkSettings& settings) {
  if (is_of_counts(o)) return std::nullopt;
  auto const* const named = o.graph.empty() ? "--dataset" : "--graph";
  if (o.vertices > 0 || o.nonzeros > 0)
    runtime::throw_user("plan: {} has the counts of its graph; leave out --vertices and --nonzeros", named);
  if (!o.symmetric.empty())
    runtime::throw_user("plan: {} knows whether its graph is symmetric; leave out --symmetric", named);
  auto store = open_graph_of(context.world(), o);
  models::use_operator(store, settings);
  auto const renormalizes = o.mode == "minibatch" && batch_edges_of(o, store.facts()) == "renormalize";
  require_operator(context, store, settings,
                   o.compute_dtype == "fp32" ? graph::Precision::fp32 : graph::Precision::fp64,
                   renormalizes ? graph::Neighborhood::within_batch : graph::Neighborhood::whole);
  settings.schedule = schedules_of(o, settings).front();
  std::ignore = models::plan_network(store, settings); // throws if there is nothing to train on
  return store;
}

std::vector<std::int64_t> widths_of(graph::StoreFacts const& facts, PlanOptions const& o,
                                    models::NetworkSettings const& settings) {
  auto const num_outputs = models::predicts_links(settings) ? settings.embedding_width : facts.num_classes;
  if (o.widths.empty()) {
    std::vector<std::int64_t> widths{facts.num_features};
    widths.insert(widths.end(), settings.hidden_widths.begin(), settings.hidden_widths.end());
    widths.push_back(num_outputs);
    return widths;
  }
  auto widths = parse_widths(o.widths);
  if (widths.front() != facts.num_features || widths.back() != num_outputs)
    runtime::throw_user("--widths {}: the graph has {} features and {} {}", o.widths, facts.num_features,
                        num_outputs, models::predicts_links(settings) ? "columns of embeddings" : "classes");
  return widths;
}

std::vector<models::Schedule> schedules_of(PlanOptions const& o, models::NetworkSettings const& settings) {
  auto const word = models::open_schedules(settings, o.schedule);
  if (word == "auto") return {models::Schedule::pmm3d, models::Schedule::rows};
  return {models::parse_schedule(word)};
}

std::string train_command(Context const& context, PlanOptions const& o, models::Schedule schedule,
                          pmm::GridShape const& shape) {
  auto text =
      fmt::format("\northant train --grid {} --schedule {}", shape.to_string(), models::name_of(schedule));
  if (is_of_counts(o)) text += " --graph GRAPH.h5";
  text += given_flags(context, {"ranks", "top", "arrays", "json", "simulate", "slow-ranks", "exact",
                                "least-width", "widths", "vertices", "nonzeros", "symmetric"});
  if (!o.widths.empty()) {
    auto const widths = parse_widths(o.widths);
    auto const is_even = std::ranges::adjacent_find(widths.begin() + 1, widths.end() - 1,
                                                    std::ranges::not_equal_to{}) == widths.end() - 1;
    if (!is_even) text += " ...   (train takes one --hidden for all layers)";
    if (is_even) text += fmt::format(" --layers {}", o.num_layers());
    if (is_even && widths.size() > 2) text += fmt::format(" --hidden {}", o.hidden);
  }
  return text + fmt::format("     # on {} rank{}\n", shape.num_ranks(), shape.num_ranks() == 1 ? "" : "s");
}

} // namespace orthant::cli
