#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What `orthant train` takes, and with it `plan`, `bench epoch` and `evaluate`, each of which passes over what it has no use for.
//
// Named sets of options of train: a model with the settings of its paper for a graph.

#include "cli/options/command.hpp"
#include "cli/options/shared_options.hpp"

#include <optional>
#include <string>
#include <vector>

namespace orthant::cli {

/// Bounds of --layers and --hidden. Deeper and wider is a slip; what fits is for the memory to say.
inline constexpr std::int64_t most_layers = 10'000;
inline constexpr std::int64_t most_hidden = std::int64_t{1} << 20;

struct TrainOptions : GraphModelOptions, GridOptions, OptimizerOptions, WeightOptions, CheckpointOptions {
  std::string graph;   // a store
  std::string dataset; // or an embedded one: "karate", "sbm:vertices=1000,..", ..
  std::string mode = "full";
  std::string task = "nodes";
  std::int64_t embedding = 64;                // width of the outputs, by which links are predicted
  std::string decoder = "dot";                // what scores pairs of them
  std::optional<std::int64_t> decoder_hidden; // of its hidden layer; none: --embedding
  std::string preset = "none";

  // model
  std::int64_t layers = 3;
  std::int64_t hidden = 128;
  double dropout = 0.5;
  double attention_dropout = 0;
  double edge_dropout = 0;
  bool bias = true;
  std::string norm = "none";
  bool residual = false;
  bool input_projection = false;
  bool head = false;
  std::string feature_norm = "none";
  std::string normalize = "auto";
  std::string self_loops = "auto";
  bool trainable_features = false;

  // optimiser
  std::optional<double> weight_decay_first_layer;
  std::optional<double> weight_decay_last_layer;
  std::string class_weights = "none";
  double label_smoothing = 0;
  std::int64_t epochs = 100;
  std::int64_t seeds = 1;                   // trainings, of --seed and those after it
  std::optional<std::int64_t> dataset_seed; // of --dataset, if it is not --seed

  // mini-batch
  std::string batch = "auto"; // or vertices
  std::string sampler = "uniform";
  std::string batch_edges = "auto";
  std::int64_t accumulate = 1;
  double batch_train_fraction = 0; // 0: as many training vertices as a batch has by chance
  std::int64_t finish_full = 0;

  // running
  std::int64_t eval_every = 10;
  bool roc_auc = false;
  std::string monitor = "accuracy";
  std::int64_t patience = 0;
  std::int64_t log_every = 1;
  std::string compute_dtype = "fp32";
  std::string gemm_math = "fp32";
  std::string comm_dtype = "fp32";
  std::string operand_dtype = "fp32";
  std::string overlap = "auto";
  std::string order = "auto";
  std::string schedule = "auto";
  std::string gemm_table;
  std::string gather = "auto";
  std::string prune = "off";
  std::string device_graph = "on";
  bool force_memory = false;

  /// Of the hidden layer of a perceptron that scores links; 0: there is none.
  [[nodiscard]] std::int64_t decoder_width() const {
    return task == "links" && decoder == "mlp" ? decoder_hidden.value_or(embedding) : 0;
  }
};

/// All but --preset. The one definition of them for each command that takes what a training takes; its members hold the
/// defaults.
void add_options(Command& command, TrainOptions& options);

// Options of train that would do nothing beside the others. A flag that has no effect is a mistake, and refused; what
// an environment or a file says may be meant for other trainings, and is told.

/// Throws UserError, which says what would give the flag an effect, for the first one without any. The same on all
/// ranks; not collective.
void require_effective_options(Context const& context, TrainOptions const& options);
/// The same of the options of the optimizer, which every training has.
void require_effective_optimizer_options(Context const& context, OptimizerOptions const& options);

/// Throws UserError if --checkpoint-every or --max-walltime cannot be read, for commands that pass them over. `unit`: "epoch".
void require_readable_times(CheckpointOptions const& options, std::string_view unit);

// What `orthant bench epoch` takes of a training's command line; it passes over what makes no difference to an epoch.

void add_epoch_options(Command& command, TrainOptions& options);
/// Takes --preset into the options and makes the checks of train. Throws UserError, also for what has no bare products.
void complete_epoch_options(Context& context, TrainOptions& options);

/// Adds --preset.
void add_preset_option(Command& command, TrainOptions& options);
/// Options that nobody gave := those of --preset; the run's record says so.
void apply_preset(Context& context, TrainOptions& options);

} // namespace orthant::cli
