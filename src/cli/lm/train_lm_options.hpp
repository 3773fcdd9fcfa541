#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Options of `orthant train-lm`, its presets (named sets of options, each of which a flag, the environment or a file overrides), and the
// options that an architecture implies.

#include "cli/options/shared_options.hpp"
#include "models/lm/plan/transformer_plan.hpp"
#include "models/lm/training/sequence_rows.hpp"
#include "models/training/optimizer.hpp"

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace orthant::cli {

inline constexpr std::int64_t widest_model = std::int64_t{1} << 20;
inline constexpr std::int64_t most_layers_of_model = 10'000;

struct TrainLmOptions : GridOptions, OptimizerOptions, WeightOptions, CheckpointOptions {
  TrainLmOptions(); // defaults differ from graph networks

  std::string tokens; // a token file
  std::string preset = "none";

  // model
  std::string arch = "gpt2";
  std::int64_t layers = 4;
  std::int64_t hidden = 128;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 0;     // 0: --heads
  std::int64_t feed_forward = 0; // 0: set by --arch
  std::int64_t positions = 0;    // 0: --sequence
  bool bias = true;
  bool tied_head = true;
  double dropout = 0;
  double norm_epsilon = 1e-5;
  double rotary_base = 10000;
  std::string rotary_scaling = "none";
  std::int64_t head_width = 0;
  bool qk_norm = false;
  std::string qk_norm_over = "head";
  std::string activation = "auto";
  std::string top_k_weights = "normalized";

  std::int64_t pipeline = 1; // stages

  // experts
  std::int64_t experts = 0;
  std::int64_t expert_axis = 1;
  std::int64_t top_k = 1;
  std::int64_t moe_every = 1;
  std::int64_t dense_layers = 0;
  std::int64_t expert_width = 0; // 0: --feed-forward
  double top_k_scale = 1;
  std::int64_t shared_experts = 0;
  std::string capacity = "none"; // none, or a multiple of the mean load
  std::string capacity_group = "step";
  std::string balance = "loss";
  double balance_loss = 0.01;
  double sequence_balance_loss = 0;
  double z_loss = 0;
  double router_noise = 0;
  std::string expert_imbalance = "auto"; // or load of the most chosen expert / mean
  std::string expert_placement = "order";
  std::string expert_loads; // metrics of an earlier run

  // batches
  std::int64_t sequence = 64;
  std::int64_t context_axis = 1; // ranks that share each sequence
  std::string context_exchange = "auto";
  std::int64_t global_batch = 12;
  bool document_mask = false;
  std::int64_t accumulate = 1;
  std::int64_t steps = 2000;

  // sharded states
  std::int64_t zero = 0;
  std::string zero_group = "all";

  // pruned training
  std::optional<double> prune_to;
  std::optional<std::int64_t> prune_at;

  // loss
  double label_smoothing = 0;
  double logit_z_loss = 0;
  std::string goldfish = "none"; // none, or K,H

  // fine-tuning and optimizer
  std::int64_t lora_rank = 0;
  double lora_alpha = 16;
  std::vector<std::string> lora_targets{"q", "v"};
  std::vector<std::string> freeze;
  std::vector<std::string> no_decay;

  // running
  std::int64_t eval_every = 250;
  std::int64_t patience = 0;
  std::int64_t log_every = 10;
  bool stragglers = false;
  std::string activation_checkpointing = "none"; // full, or a number of layers
  std::vector<std::string> recompute;
  std::string pipeline_schedule = "1f1b";
  bool keep_collectives = false;
  std::string precision = "fp32"; // sets the next two and comm_dtype unless they are given
  std::string compute_dtype = "fp32";
  std::string gemm_math = "fp32";
  std::string gemm_table;
  bool force_memory = false;

  /// Whether predictions choose the grid, or the exchange of ranks along context, which is never measured.
  [[nodiscard]] bool leaves_choice() const {
    return grid == "auto" || (measure_top == 0 && context_axis > 1 && context_exchange == "auto");
  }
};

/// Declares the options, for every command that accepts the options of train-lm. The members hold the defaults.
void add_options(Command& command, TrainLmOptions& options);

/// Sets the options that the user did not give: first those of the preset, adjusted to the user's options, then those that --arch
/// implies. Records them in the run's record. Collective.
void apply_preset(Context& context, TrainLmOptions& options);

/// Declares the options of experts except for --expert-axis.
void add_expert_options(Command& command, TrainLmOptions& options);
[[nodiscard]] models::ExpertSettings experts_of(TrainLmOptions const& options);
/// Throws UserError if an option of experts is given without --experts, or without another option that it needs to have an effect.
void require_effective_expert_options(Context const& context, TrainLmOptions const& options);

/// Throws UserError if an option of adapters is given without --lora-rank, or if there are no weights to adapt.
void require_effective_adapter_options(Context const& context, TrainLmOptions const& options);

/// Settings of the model, with a vocabulary of one, since the vocabulary of the tokens is not known yet. Throws UserError if the options
/// contradict each other.
[[nodiscard]] models::TransformerSettings model_of(TrainLmOptions const& options);
[[nodiscard]] models::SequenceSettings sequences_of(TrainLmOptions const& options);
[[nodiscard]] models::InnerAxes inner_axes_of(TrainLmOptions const& options);

/// Settings of the optimizer; at ZeRO stages 1 and 2 its states are sharded over the batch axes.
[[nodiscard]] models::OptimizerSettings optimizer_of(TrainLmOptions const& options);
/// ZeRO stage 3: the grid of --grid with its data ranks along z, if --zero 3 is given. `ranks_per_node`: of the job's machine. Throws
/// UserError if --zero-group does not fit the grid or the stage.
/// Throws UserError if two stages would share a table whose states --zero shards on `shape`.
void require_whole_tables(TrainLmOptions const& o, pmm::GridShape const& shape);
[[nodiscard]] pmm::GridShape grid_of_stage(TrainLmOptions const& options, pmm::GridShape const& shape,
                                           int ranks_per_node);
/// The ranks per node that --zero 3 shares weights within, 0 for all; nothing at other stages.
[[nodiscard]] std::optional<int> weights_shared_within(TrainLmOptions const& options, int ranks_per_node);

/// The presets; the first is "none", which sets no options.
[[nodiscard]] std::span<Preset const> language_model_presets();

} // namespace orthant::cli
