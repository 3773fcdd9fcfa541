// SPDX-License-Identifier: Apache-2.0
#include "cli/training/train_options.hpp"

#include "models/gnn/plan/gnn_model.hpp"
#include "models/gnn/plan/network_settings.hpp"
#include "pmm/kernels/host_parts.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

namespace orthant::cli {
namespace {

struct Idle {
  std::string_view option;
  std::string reason; // text after the option's name: "is for mini-batches: .."
};

std::vector<Idle> idle_optimizer_options(OptimizerOptions const& o) {
  std::vector<Idle> idle;
  if (o.lr_schedule != "step")
    idle.push_back({"lr-step", "is for --lr-schedule step: leave it out, or give that"});
  if (o.lr_schedule != "plateau")
    idle.push_back({"lr-patience", "is for --lr-schedule plateau: leave it out, or give that"});
  if (o.lr_schedule != "wsd")
    idle.push_back({"lr-decay-share", "is for --lr-schedule wsd: leave it out, or give that"});
  if (o.lr_schedule != "step" && o.lr_schedule != "plateau")
    idle.push_back({"lr-factor", "is for --lr-schedule step and plateau: leave it out, or give one of them"});
  if (o.optimizer == "sgd" || o.optimizer == "jorge")
    for (auto const* const option : {"betas", "moments"})
      idle.push_back(
          {option, fmt::format("are of Adam and Lion: leave them out with --optimizer {}", o.optimizer)});
  if (o.optimizer != "jorge")
    for (auto const* const option : {"jorge-interval", "jorge-tile"})
      idle.push_back({option, "is for --optimizer jorge: leave it out, or give that"});
  return idle;
}

/// Options without effect that are refused if they are given as flags.
std::vector<Idle> mistakes(TrainOptions const& o) {
  auto idle = idle_optimizer_options(o);
  if (o.mode == "full")
    for (auto const* const option : {"batch", "sampler", "batch-edges", "batch-source", "accumulate",
                                     "batch-train-fraction", "finish-full"})
      idle.push_back({option, "is for mini-batches: give --mode minibatch, or leave it out"});
  if (o.eval_every == 0) {
    idle.push_back(
        {"roc-auc", "is what evaluations find, and --eval-every 0 has none: leave one of them out"});
    idle.push_back({"monitor", "compares evaluations, and --eval-every 0 has none: leave one of them out"});
  }
  if (o.task != "links")
    for (auto const* const option : {"embedding", "decoder", "decoder-hidden"})
      idle.push_back({option, "is for --task links: leave it out, or give that"});
  else if (o.decoder == "dot")
    idle.push_back({"decoder-hidden", "is for --decoder mlp: leave it out, or give that"});
  if (o.loss != "focal") idle.push_back({"focal-gamma", "is for --loss focal: leave it out, or give that"});
  if (o.task == "links") {
    idle.push_back({"roc-auc", "is always found with --task links: leave it out"});
    idle.push_back({"split", "is of vertices: leave it out with --task links"});
    for (auto const* const option : {"class-weights", "label-smoothing", "loss"})
      idle.push_back({option, "is of classes of vertices: leave it out with --task links"});
  }
  if constexpr (pmm::runs_on_host)
    idle.push_back(
        {"device-graph", "records work of a device, and this build computes on the host: leave it out"});
  else if (o.optimizer == "jorge")
    idle.push_back(
        {"device-graph",
         "records steps that are all alike, and those of --optimizer jorge are not: leave it out"});
  return idle;
}

/// An option that means nothing for this network, and the function that resets it to the value that the network has.
struct Meaningless {
  std::string_view option;
  std::string reason;                     // text after "--norm has no effect: "
  void (*reset)(TrainOptions&) = nullptr; // null: the value is not read
};

using List = std::vector<Meaningless>;

/// Options of hidden layers, if there are no such layers.
void add_hidden_layers(List& list, TrainOptions const& o, models::ModelTraits const& traits) {
  auto const always_has_head = traits.always_has_head();
  auto const has_head = o.head || always_has_head || o.jump != "none";
  if (always_has_head) list.push_back({"head", fmt::format("--model {} always has one", o.model)});
  auto const num_layers = o.num_layers();
  auto const no_hidden = std::string("one layer alone has no hidden layers");
  if (num_layers == 1 && !has_head && !o.input_projection) list.push_back({"hidden", no_hidden});
  // The dense layer before propagations is linear, also if a head follows, and so is the last layer of R-GAT.
  auto const ends_linear = traits.has_propagations || traits.has_relation_attention;
  if (num_layers > 1 || (has_head && !ends_linear)) return;
  list.push_back({"norm", no_hidden, [](auto& options) { options.norm = "none"; }});
  list.push_back({"activation", no_hidden, [](auto& options) { options.activation = "relu"; }});
  list.push_back({"residual", no_hidden, [](auto& options) { options.residual = "none"; }});
}

/// Options of the operator that the layers multiply by.
void add_operator(List& list, TrainOptions const& o, models::ModelTraits const& traits) {
  if (traits.graph_operator) {
    auto const why = fmt::format("--model {} has an operator of its own", o.model);
    list.push_back({"normalize", why, [](auto& options) { options.normalize = "auto"; }});
    list.push_back({"self-loops", why, [](auto& options) { options.self_loops = "auto"; }});
  }
  auto const reads_edges = traits.attention || traits.takes_maximum;
  if ((reads_edges || traits.has_relations) && o.mode == "minibatch")
    list.push_back({"batch-edges", "no layer multiplies by weights of edges",
                    [](auto& options) { options.batch_edges = "auto"; }});
  if (traits.begins_dense() || reads_edges || traits.has_powers || traits.own || traits.has_relations)
    list.push_back({"order", fmt::format("--model {} always multiplies in the same order", o.model),
                    [](auto& options) { options.order = "auto"; }});
  if (traits.has_relations)
    list.push_back({"gather", fmt::format("--model {} moves all rows", o.model),
                    [](auto& options) { options.gather = "all"; }});
  auto const is_of_links = o.task == "links";
  if ((traits.needs_owners() || is_of_links) && o.schedule == "pmm3d")
    list.push_back({"schedule",
                    fmt::format("{} {} needs --schedule rows, which is used instead",
                                is_of_links ? "--task" : "--model", is_of_links ? o.task : o.model),
                    [](auto& options) { options.schedule = "rows"; }});
  else if (o.schedule == "pmm3d" && !traits.has_relations)
    list.push_back(
        {"gather", "--schedule pmm3d moves whole blocks", [](auto& options) { options.gather = "auto"; }});
}

/// Options of single models.
void add_other_models(List& list, TrainOptions const& o, models::ModelTraits const& traits) {
  if (!traits.has_steps()) list.push_back({"propagation-steps", "it is for --model sgc, appnp and tag"});
  if (!traits.has_teleport) list.push_back({"teleport", "it is for --model appnp and gcnii"});
  if (!traits.has_relations || traits.has_relation_attention)
    for (auto const* const option : {"bases", "blocks"})
      list.push_back({option, "it is for --model rgcn and rsage"});
  if (!traits.has_identity_maps) list.push_back({"theta", "it is for --model gcnii"});
  if (!traits.attention) list.push_back({"output-heads", "it is for --model gat, gatv2 and transformer"});
  if (!traits.has_relation_attention) list.push_back({"target-weights", "it is for --model rgat"});
  if (!traits.attention && !traits.has_relation_attention)
    for (auto const* const option : {"heads", "attention-dropout"})
      list.push_back({option, "it is for --model gat, gatv2, transformer and rgat"});
  if (o.model != "sage" && o.model != "graphconv")
    list.push_back({"aggregator", "it is for --model sage and graphconv"});
}

/// Options of pruning, if steps compute all rows.
void add_pruning(List& list, TrainOptions const& o, models::ModelTraits const& traits) {
  auto const add = [&](std::string reason) {
    list.push_back({"prune", std::move(reason), [](auto& options) { options.prune = "off"; }});
  };
  if (o.task == "links")
    add("--task links trains on all vertices");
  else if (o.mode == "minibatch")
    add("it is for steps on the full graph");
  else if (o.schedule == "pmm3d" && !traits.needs_owners())
    add("vertices can be skipped only in --schedule rows");
  else if (o.norm == "batch")
    add("--norm batch takes means over all vertices");
  else if (traits.has_powers || traits.own)
    add(fmt::format("a layer of --model {} reads more than the neighbors of its output's vertices", o.model));
  else if (traits.attention == models::AttentionKind::transformer)
    add("--model transformer computes queries for all vertices");
}

List without_meaning(TrainOptions const& o) {
  auto const traits = models::traits_of(models::parse_model(o.model), aggregator_of(o));
  List list;
  add_hidden_layers(list, o, traits);
  add_operator(list, o, traits);
  add_other_models(list, o, traits);
  add_pruning(list, o, traits);
  return list;
}

/// True if the option has the value that means "no effect".
bool asks_for_nothing(Context const& context, std::string_view option) {
  auto const& value = context.run_record.at("configuration").at(std::string(option));
  if (option == "device-graph") return value == "off";
  if (option == "norm" || option == "residual" || option == "class-weights") return value == "none";
  if (option == "activation") return value == "relu";
  if (option == "prune") return value != "on";
  if (option == "monitor") return value == "accuracy";
  if (option == "split") return value == "0" || value == 0;
  if (option == "decoder") return value == "dot";
  if (option == "roc-auc" || option == "head") return value == false;
  if (option == "sampler") return value == "uniform";
  if (option == "moments") return value == "fp32";
  if (option == "jorge-interval") return value == OptimizerOptions().jorge_interval;
  if (option == "jorge-tile") return value == OptimizerOptions().jorge_tile;
  if (option == "bases" || option == "blocks") return value == 0;
  if (option == "finish-full" || option == "batch-train-fraction" || option == "label-smoothing")
    return value == 0;
  return value == "auto";
}

/// Source of an option's value: flag, environment or file; nullopt if it was not given or has the value that means "no effect".
std::optional<std::string> source_of(Context const& context, std::string_view option) {
  auto const& sources = context.run_record.at("sources");
  auto source = sources.value(std::string(option), std::string("default"));
  if (source == "default" || source == "preset" || asks_for_nothing(context, option)) return std::nullopt;
  return source;
}

std::string_view place_of(std::string_view source) {
  return source == "config" ? "file of --config" : "environment";
}

/// Throws UserError for the first idle flag; logs idle values from the environment or a file.
void refuse(Context const& context, std::vector<Idle> const& idle) {
  for (auto const& [option, reason] : idle) {
    auto const source = source_of(context, option);
    if (!source) continue;
    if (source == "flag") runtime::throw_user("--{} {}", option, reason);
    if (context.world().is_root())
      context.log().info("{} of the {} has no effect here: it {}", option, place_of(*source), reason);
  }
}

void require_fitting_task(TrainOptions const& o) {
  if (o.task != "links") return;
  if (o.mode == "minibatch") models::refuse(models::Refused::link_batches, "leave one of them out");
}

} // namespace

std::vector<std::string> options_without_meaning(TrainOptions const& options) {
  std::vector<std::string> names;
  for (auto const& idle : without_meaning(options))
    names.emplace_back(idle.option);
  return names;
}

void settle_idle_options(Context const& context, TrainOptions& options) {
  require_fitting_task(options);
  refuse(context, mistakes(options));
  for (auto const& [option, reason, reset] : without_meaning(options)) {
    if (auto const source = source_of(context, option); source && context.world().is_root()) {
      if (*source == "flag")
        context.log().warn("--{} has no effect: {}", option, reason);
      else
        context.log().info("{} of the {} has no effect here: {}", option, place_of(*source), reason);
    }
    if (reset != nullptr) reset(options);
  }
  // Only the schedule `rows` supports these values.
  if ((options.prune == "on" || options.gather == "needed") && options.schedule == "auto")
    options.schedule = "rows";
}

void require_effective_optimizer_options(Context const& context, OptimizerOptions const& options) {
  refuse(context, idle_optimizer_options(options));
}

} // namespace orthant::cli
