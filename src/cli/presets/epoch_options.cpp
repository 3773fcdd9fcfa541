// SPDX-License-Identifier: Apache-2.0
#include "cli/presets/epoch_options.hpp"

#include "cli/presets/graph_presets.hpp"
#include "cli/training/effective_options.hpp"
#include "cli/training/train_run.hpp"

#include <array>
#include <string_view>

namespace orthant::cli {
namespace {

/// Options of train that an epoch depends on, and the groups of which all count.
constexpr std::array<std::string_view, 29> used{
    "Model",         "graph",        "dataset",     "mode",          "task",
    "grid",          "machine",      "measure-top", "preset",        "optimizer",
    "weight-decay",  "clip-norm",    "epochs",      "seed",          "weight-decay-first-layer",
    "compute-dtype", "gemm-math",    "gemm-table",  "comm-dtype",    "weight-decay-last-layer",
    "overlap",       "order",        "schedule",    "operand-dtype", "gather",
    "device-graph",  "force-memory", "lr",          "betas"};

/// The preset's network; how often it is trained is not of interest here.
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
  require_effective_options(context, train);
  if (train.mode == "minibatch")
    runtime::throw_user("bench epoch times epochs of the full graph: leave out --mode minibatch");
  if (train.task == "links")
    runtime::throw_user(
        "bench epoch has no bare products of the scores of links so far: leave out --task links");
  if (train.model == "sage" && train.aggregator == "max")
    runtime::throw_user("bench epoch has no bare products of maxima so far: leave out --aggregator max");
  if (train.edge_dropout > 0)
    runtime::throw_user("bench epoch multiplies by all edges: leave out --edge-dropout");
  if (train.epochs == 0) runtime::throw_user("--epochs 0: at least one epoch must be timed");
  require_fitting_types(train);
  require_prunable(train);
  require_readable_times(train, "epoch");
}

} // namespace orthant::cli
