// SPDX-License-Identifier: Apache-2.0
#include "cli/training/train_options.hpp"

#include "cli/options/gemm_options.hpp"
#include "cli/options/shared_options.hpp"
#include "cli/training/train_settings.hpp"

#include <array>
#include <fmt/ranges.h>
#include <map>
#include <string_view>

namespace orthant::cli {
namespace {

/// Options of train that an epoch depends on, and groups of which it uses all options.
constexpr std::array<std::string_view, 31> used{"split",         "Model",
                                                "graph",         "dataset",
                                                "mode",          "task",
                                                "grid",          "machine",
                                                "measure-top",   "preset",
                                                "optimizer",     "weight-decay",
                                                "clip-norm",     "epochs",
                                                "seed",          "weight-decay-first-layer",
                                                "compute-dtype", "precision",
                                                "gemm-math",     "gemm-table",
                                                "comm-dtype",    "weight-decay-last-layer",
                                                "overlap",       "order",
                                                "schedule",      "operand-dtype",
                                                "gather",        "device-graph",
                                                "force-memory",  "lr",
                                                "betas"};

/// Applies the preset except its number of epochs.
void take_preset(Context& context, TrainOptions& train) {
  auto const epochs = train.epochs;
  apply_preset(context, train);
  train.epochs = epochs;
  auto& source = context.run_record.at("sources").at("epochs");
  if (source == "preset") source = "default";
  context.run_record.at("configuration").at("epochs") = epochs;
}

} // namespace

void add_epoch_options(Command& command, TrainOptions& options) {
  add_preset_option(command, options);
  add_options(command, options);
  command.read_table_of("train");
  command.pass_over_all_but(used);
}

void complete_epoch_options(Context& context, TrainOptions& train) {
  take_preset(context, train);
  settle_idle_options(context, train);
  if (train.mode == "minibatch")
    runtime::throw_user("bench epoch times epochs of the full graph: leave out --mode minibatch");
  if (train.task == "links")
    runtime::throw_user(
        "bench epoch has no bare products of the scores of links so far: leave out --task links");
  auto const traits = models::traits_of(models::parse_model(train.model), aggregator_of(train));
  if (traits.has_powers || traits.own || traits.has_relations)
    runtime::throw_user("bench epoch has no bare products of --model {} so far: take another one",
                        train.model);
  if (traits.takes_maximum)
    runtime::throw_user("bench epoch has no bare products of maxima so far: leave out --aggregator max");
  if (train.model == "transformer")
    runtime::throw_user(
        "bench epoch has no bare products of dot products on edges so far: take another --model");
  if (train.edge_dropout > 0)
    runtime::throw_user("bench epoch multiplies by all edges: leave out --edge-dropout");
  if (train.epochs == 0) runtime::throw_user("--epochs 0: at least one epoch must be timed");
  require_fitting_types(train);
  require_readable_times(train, "epoch");
}

namespace {

using Json = nlohmann::ordered_json;

/// Options of `base`, with those of `more` added or replaced.
Json with(Json base, Json const& more) {
  base.update(more);
  return base;
}

/// kipf-gcn   arXiv 1609.02907, section 5.2: the same for Cora, CiteSeer and PubMed. Evaluates each epoch. The paper stops after 10
/// epochs
///            without a smaller validation loss.
/// gat-cora   arXiv 1710.10903, section 3.3. Stops 100 epochs after the last gain of validation loss or accuracy, as the authors'
/// program.
/// sgc-*      arXiv 1902.07153, appendix B.1, with the number of epochs of the authors' program for CiteSeer. The only tuned number, the
///            weight decay, is that program's default.
/// appnp-*    arXiv 1810.05997, section 5 (alpha, K, learning rate, decay of the first layer, patience), without edge dropout.
/// gcnii-*    arXiv 2007.02133, table 6: lambda is --theta, L2_c is --weight-decay, L2_d the decay of the first and the last layer.
///            These two layers have biases and the convolutions have none, as in the authors' program. Stops 100 epochs after the least
///            validation loss.
std::span<Preset const> presets() {
  static Json const kipf{
      {"model", "gcn"}, {"layers", 2},           {"hidden", 16}, {"dropout", 0.5},
      {"bias", false},  {"feature-norm", "row"}, {"lr", 0.01},   {"weight-decay-first-layer", 5e-4},
      {"epochs", 200},  {"eval-every", 1}};
  static Json const gat{
      {"model", "gat"},        {"layers", 2},         {"hidden", 64},         {"heads", 8},
      {"output-heads", 1},     {"activation", "elu"}, {"dropout", 0.6},       {"attention-dropout", 0.6},
      {"feature-norm", "row"}, {"lr", 0.005},         {"weight-decay", 5e-4}, {"epochs", 1000},
      {"monitor", "both"},     {"patience", 100},     {"eval-every", 1}};
  static Json const sgc{{"model", "sgc"}, {"propagation-steps", 2}, {"dropout", 0.0}, {"feature-norm", "row"},
                        {"lr", 0.2},      {"weight-decay", 5e-6},   {"epochs", 100},  {"eval-every", 1}};
  static Json const appnp{{"model", "appnp"},        {"layers", 2},     {"hidden", 64},
                          {"propagation-steps", 10}, {"teleport", 0.1}, {"dropout", 0.5},
                          {"feature-norm", "row"},   {"lr", 0.01},      {"weight-decay-first-layer", 5e-3},
                          {"epochs", 10000},         {"patience", 100}, {"eval-every", 1}};
  static Json const gcnii{{"model", "gcnii"},
                          {"layers", 64},
                          {"hidden", 64},
                          {"teleport", 0.1},
                          {"theta", 0.5},
                          {"dropout", 0.6},
                          {"feature-norm", "row"},
                          {"lr", 0.01},
                          {"weight-decay", 0.01},
                          {"weight-decay-first-layer", 5e-4},
                          {"weight-decay-last-layer", 5e-4},
                          {"epochs", 1500},
                          {"monitor", "loss"},
                          {"patience", 100},
                          {"eval-every", 1}};
  static std::vector<Preset> const all{
      {"none", Json::object()},
      {"kipf-gcn", kipf},
      {"gat-cora", gat},
      {"sgc-cora", sgc},
      {"sgc-citeseer", with(sgc, {{"epochs", 150}})},
      {"sgc-pubmed", sgc},
      {"appnp-cora", appnp},
      {"appnp-citeseer", appnp},
      {"appnp-pubmed", appnp},
      {"gcnii-cora", gcnii},
      {"gcnii-citeseer", with(gcnii, {{"layers", 32}, {"hidden", 256}, {"theta", 0.6}, {"dropout", 0.7}})},
      {"gcnii-pubmed",
       with(gcnii,
            {{"layers", 16}, {"hidden", 256}, {"theta", 0.4}, {"dropout", 0.5}, {"weight-decay", 5e-4}})}};
  return all;
}

/// Sets the option `name`.
void set(TrainOptions& o, std::string const& name, Json const& value) {
  using Options = TrainOptions;
  static std::map<std::string_view, std::int64_t Options::*> const integers{
      {"hidden", &Options::hidden},
      {"heads", &Options::heads},
      {"output-heads", &Options::output_heads},
      {"epochs", &Options::epochs},
      {"eval-every", &Options::eval_every},
      {"patience", &Options::patience}};
  static std::map<std::string_view, double Options::*> const numbers{
      {"dropout", &Options::dropout},
      {"attention-dropout", &Options::attention_dropout},
      {"teleport", &Options::teleport},
      {"theta", &Options::theta},
      {"lr", &Options::lr},
      {"weight-decay", &Options::weight_decay}};
  static std::map<std::string_view, std::optional<double> Options::*> const others{
      {"weight-decay-first-layer", &Options::weight_decay_first_layer},
      {"weight-decay-last-layer", &Options::weight_decay_last_layer}};
  static std::map<std::string_view, std::string Options::*> const words{
      {"model", &Options::model},
      {"activation", &Options::activation},
      {"monitor", &Options::monitor},
      {"feature-norm", &Options::feature_norm},
      {"compute-dtype", &Options::compute_dtype},
      {"operand-dtype", &Options::operand_dtype},
      {"comm-dtype", &Options::comm_dtype},
      {"gemm-math", &Options::gemm_math}};
  if (auto const integer = integers.find(name); integer != integers.end())
    o.*integer->second = value;
  else if (auto const number = numbers.find(name); number != numbers.end())
    o.*number->second = value;
  else if (auto const other = others.find(name); other != others.end())
    o.*other->second = value.get<double>();
  else if (auto const word = words.find(name); word != words.end())
    o.*word->second = value;
  else if (name == "layers")
    o.layers = value.get<std::int64_t>();
  else if (name == "propagation-steps")
    o.propagation_steps = value.get<std::int64_t>();
  else if (name == "bias")
    o.bias = value;
  else
    ORTHANT_REQUIRE(false, "a preset sets ", name, ", which nobody reads");
}

/// Divisor of `width` that is nearest to `heads`.
std::int64_t fitting_heads(std::int64_t width, std::int64_t heads) {
  for (std::int64_t distance = 0;; ++distance)
    for (auto const candidate : {heads - distance, heads + distance})
      if (candidate >= 1 && width % candidate == 0) return candidate;
}

void fit(PresetFit& preset, TrainOptions& o) {
  auto const has_heads =
      o.model == "gat" || o.model == "gatv2" || o.model == "transformer" || o.model == "rgat";
  if (has_heads && preset.gives("hidden"))
    preset.change("hidden", o.hidden, (o.hidden + o.heads - 1) / o.heads * o.heads);
  if (has_heads && preset.gives("heads")) preset.change("heads", o.heads, fitting_heads(o.hidden, o.heads));
  if (preset.gives("epochs")) {
    // An epoch of mini-batches has one step per batch, so only full-graph training needs more epochs than warm-up steps.
    if (o.mode == "full" && o.warmup_steps >= o.epochs && o.warmup_steps < most_epochs)
      preset.change("epochs", o.epochs, o.epochs + o.warmup_steps);
    if (o.mode == "minibatch" && o.finish_full > o.epochs)
      preset.change("epochs", o.epochs, o.epochs + o.finish_full);
  }
  if (o.eval_every == 0 && preset.gives("patience")) preset.change("patience", o.patience, std::int64_t{0});
  if (o.min_lr > o.lr && preset.gives("lr")) preset.change("lr", o.lr, o.min_lr);
  preset.tell();
}

} // namespace

void add_preset_option(Command& command, TrainOptions& o) {
  command.option(
      "--preset", o.preset,
      fmt::format("Published settings of a model for a graph, for all options that are not given: {}",
                  fmt::join(names_of(presets()), ", ")),
      one_of(names_of(presets())));
}

void apply_preset(Context& context, TrainOptions& options) {
  auto const set_option = [&](std::string const& name, Json const& value) { set(options, name, value); };
  set_unless_given(context, options_of(presets(), options.preset), set_option);
  PresetFit preset(context, options.preset);
  fit(preset, options);
  auto const activations =
      options.model == "gcn" && options.jump == "none" ? Activations::of_16_bits : Activations::of_fp32;
  set_unless_given(context, options_of_precision(options.precision, activations), set_option);
}

} // namespace orthant::cli
