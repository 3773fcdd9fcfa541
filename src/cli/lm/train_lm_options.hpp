#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What `orthant train-lm` takes, and the presets: names of whole sets of options, each of which a flag, the environment
// or a file overrides.
//
// Named sets of options of train-lm, and what an architecture implies.

#include "cli/options/shared_options.hpp"
#include "models/lm/plan/transformer_settings.hpp"
#include "models/lm/training/sequence_rows.hpp"

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

namespace orthant::cli {

struct TrainLmOptions : GridOptions, OptimizerOptions, WeightOptions, CheckpointOptions {
  TrainLmOptions(); // other defaults than graphs have

  std::string tokens; // a token file
  std::string preset = "none";

  // model
  std::string arch = "gpt2";
  std::int64_t layers = 4;
  std::int64_t hidden = 128;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 0;     // 0: as many as heads
  std::int64_t feed_forward = 0; // 0: by --arch
  std::int64_t positions = 0;    // 0: --sequence
  bool bias = true;
  bool tied_head = true;
  double dropout = 0;
  double norm_epsilon = 1e-5;
  double rotary_base = 10000;

  // experts
  std::int64_t experts = 0;
  std::int64_t expert_axis = 1;
  std::int64_t top_k = 1;
  std::int64_t moe_every = 1;
  std::int64_t shared_experts = 0;
  std::string capacity = "none"; // or mean loads
  std::string capacity_group = "step";
  double balance_loss = 0.01;
  double z_loss = 0;
  double router_noise = 0;
  std::string expert_imbalance = "auto"; // or the most chosen expert over the mean
  std::string expert_placement = "order";
  std::string expert_loads; // metrics of an earlier run

  // batches
  std::int64_t sequence = 64;
  std::int64_t global_batch = 12;
  std::int64_t accumulate = 1;
  std::int64_t steps = 2000;

  // running
  std::int64_t eval_every = 250;
  std::int64_t patience = 0;
  std::int64_t log_every = 10;
  std::string activation_checkpointing = "none"; // full, or a number of layers
  bool keep_collectives = false;
  std::string compute_dtype = "fp32";
  std::string gemm_math = "fp32";
  std::string gemm_table;
  bool force_memory = false;
};

/// The one definition of them for each command that takes what a training takes; its members hold the defaults.
void add_options(Command& command, TrainLmOptions& options);

/// Options that nobody gave := those of the preset, as they fit to the others, and then those that --arch implies; the run's
/// record says so. Collective.
void apply_preset(Context& context, TrainLmOptions& options);

/// Throws UserError if an option of experts is given and --experts is not, or another option without which it has no effect.
void require_effective_expert_options(Context const& context, TrainLmOptions const& options);

/// What the options ask for, with a vocabulary of one: that of the tokens is not known yet. Throws UserError if they
/// contradict each other.
[[nodiscard]] models::TransformerSettings model_of(TrainLmOptions const& options);
[[nodiscard]] models::SequenceSettings sequences_of(TrainLmOptions const& options);

/// "none", which has no options, and the others.
[[nodiscard]] std::span<Preset const> language_model_presets();
/// Of --arch: {"bias": false, ..}.
[[nodiscard]] nlohmann::ordered_json options_implied_by(std::string_view arch);

// What a preset of train-lm gives bends to the options that the user has given.

/// Changes numbers of the preset that contradict the user's options, and says so in one line. If the user's own options
/// contradict each other, these stay, for later checks to refuse. Reads the number of tokens. Collective.
void fit_preset(Context& context, TrainLmOptions& options);

} // namespace orthant::cli
