#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Options of `orthant train` and its presets (a model with the settings of its paper for a graph). `plan`, `bench epoch` and `evaluate`
// accept the same options; each ignores those that it does not use.

#include "cli/options/command.hpp"
#include "cli/options/shared_options.hpp"

#include <optional>
#include <string>
#include <vector>

namespace orthant::cli {

/// Upper bounds of --layers and --hidden. Larger values are taken for typing errors; the memory check decides whether smaller ones fit.
inline constexpr std::int64_t most_layers = 10'000;
inline constexpr std::int64_t most_hidden = std::int64_t{1} << 20;

struct TrainOptions : GraphModelOptions, GridOptions, OptimizerOptions, WeightOptions, CheckpointOptions {
  std::string graph;   // a store
  std::string dataset; // or a built-in data set: "karate", "sbm:vertices=1000,.."
  std::string mode = "full";
  std::string split = "0"; // or "all"
  std::string task = "nodes";
  std::int64_t embedding = 64;                // output width for --task links
  std::string decoder = "dot";                // function that scores a pair of embeddings
  std::optional<std::int64_t> decoder_hidden; // width of its hidden layer (default --embedding)
  std::string preset = "none";

  // model
  std::optional<std::int64_t> layers; // default 3; 1 with sgc
  std::int64_t hidden = 128;
  double dropout = 0.5;
  double attention_dropout = 0;
  double edge_dropout = 0;
  bool bias = true;
  std::string norm = "none";
  std::string residual = "none";
  std::string jump = "none";
  bool input_projection = false;
  bool head = false;
  std::string feature_norm = "none";
  std::string normalize = "auto";
  std::string self_loops = "auto";
  bool trainable_features = false;

  [[nodiscard]] std::int64_t num_layers() const { return layers.value_or(model == "sgc" ? 1 : 3); }

  // optimizer
  std::optional<double> weight_decay_first_layer;
  std::optional<double> weight_decay_last_layer;
  std::string class_weights = "none";
  double label_smoothing = 0;
  std::string loss = "auto"; // cross-entropy, or mse with targets of regression
  double focal_gamma = 2;
  std::int64_t epochs = 100;
  std::int64_t seeds = 1;                   // number of trainings, with seeds --seed, --seed + 1, ..
  std::optional<std::int64_t> dataset_seed; // seed of --dataset (default --seed)

  // mini-batch
  std::string batch = "auto"; // or a number of vertices
  std::string sampler = "uniform";
  std::string batch_edges = "auto";
  std::string batch_source = "auto";
  std::int64_t accumulate = 1;
  double batch_train_fraction = 0; // 0: training vertices are drawn like all others
  std::int64_t finish_full = 0;

  // running
  std::int64_t eval_every = 10;
  bool roc_auc = false;
  std::string monitor = "accuracy";
  std::int64_t patience = 0;
  std::int64_t log_every = 1;
  bool stragglers = false;
  std::string precision = "fp32"; // sets the next three and comm_dtype unless they are given
  std::string compute_dtype = "fp32";
  std::string gemm_math = "fp32";
  std::string operand_dtype = "fp32";
  std::string overlap = "auto";
  std::string order = "auto";
  std::string schedule = "auto";
  std::string gemm_table;
  std::string gather = "auto";
  std::string prune = "off";
  std::string device_graph = "on";
  bool force_memory = false;

  /// Width of the hidden layer of the perceptron that scores links; 0 if there is none.
  [[nodiscard]] std::int64_t decoder_width() const {
    return task == "links" && decoder == "mlp" ? decoder_hidden.value_or(embedding) : 0;
  }
};

/// Declares all options except --preset, for every command that accepts the options of train. The members hold the defaults.
void add_options(Command& command, TrainOptions& options);

/// Throws UserError if --checkpoint-every or --max-walltime cannot be read; for commands that ignore them. `unit`: "epoch" or "step".
void require_readable_times(CheckpointOptions const& options, std::string_view unit);

// Options of `orthant bench epoch`: all options of train. Options that make no difference to an epoch are ignored.

void add_epoch_options(Command& command, TrainOptions& options);
/// Applies --preset to the options and makes the checks of train. Throws UserError if they fail, and for options whose products cannot be
/// timed alone.
void complete_epoch_options(Context& context, TrainOptions& options);

/// Declares --preset.
void add_preset_option(Command& command, TrainOptions& options);
/// Sets the options of --preset that the user did not give, and records them in the run's record.
void apply_preset(Context& context, TrainOptions& options);

// Options of train that have no effect together with the others. Values from the environment or a file may be meant for other trainings, so
// they are only reported. Flags are of two kinds:
//
//   a mistake      asks for something that the training does not do, such as --batch without --mode minibatch: an error
//   no meaning the network has no such part, such as a norm without hidden layers: a warning, and the option is ignored

/// Throws UserError for the first flag that is a mistake, with a message that says what would give it an effect. Logs the other options
/// once, on the root, and sets them to the values that the network has. Same result on all ranks; not collective.
void settle_idle_options(Context const& context, TrainOptions& options);

/// Names of the options without a meaning for the network of `options`, given or not.
[[nodiscard]] std::vector<std::string> options_without_meaning(TrainOptions const& options);

/// Throws UserError for the first idle option of the optimizer, which every training has.
void require_effective_optimizer_options(Context const& context, OptimizerOptions const& options);

} // namespace orthant::cli
