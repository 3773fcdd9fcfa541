#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What all trainings take: optimizer and learning rate, files of weights, checkpoints. A training counts its
// work in epochs or in steps, and its help says so.

#include "cli/options/command.hpp"
#include "models/gnn/plan/network_settings.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::cli {

inline constexpr double largest_rate = 1e38; // a finite number in single precision

struct GridOptions {
  std::string grid = "auto"; // DxXxYxZ
  std::string machine;       // empty: the assumed one
  std::int64_t measure_top = 0;
};

/// What a network of graphs is.
struct GraphModelOptions {
  std::string model = "gcn";
  std::string aggregator = "mean"; // of GraphSAGE
  std::string activation = "relu";
  std::optional<std::int64_t> propagation_steps; // K of sgc and appnp; none: 2 and 10
  double teleport = 0.1;                         // alpha of appnp and gcnii
  double theta = 0.5;                            // of gcnii
  std::int64_t heads = 8;                        // of attention
  std::int64_t output_heads = 1;                 // of its last layer
};

struct OptimizerOptions {
  std::string optimizer = "adam";
  double lr = 0.01;
  std::string lr_schedule = "constant";
  std::int64_t warmup_steps = 0;
  double min_lr = 0;
  std::int64_t lr_step = 0; // step only
  double lr_factor = 0.1;   // step and plateau
  std::int64_t lr_patience = 10;
  std::vector<double> betas{0.9, 0.999};
  double weight_decay = 0;
  std::optional<double> clip_norm;
  std::int64_t seed = 0;
};

struct WeightOptions {
  std::string init_from;
  std::vector<std::string> init_skip; // patterns
  std::string save_weights;
  std::string save_best;
};

struct CheckpointOptions {
  std::string checkpoint; // folder
  std::string checkpoint_every = "30min";
  std::int64_t checkpoint_keep = 2;
  std::string checkpoint_async = "on";
  std::string resume = "never";
  std::string max_walltime;
  std::vector<std::string> resume_override;
};

/// --model and what some models take: --aggregator, --activation, --propagation-steps, --teleport, --theta, --heads and --output-heads.
void add_model_options(Command& command, GraphModelOptions& options);
/// Makes it such a network. Throws UserError as models::set_model().
void set_model(models::NetworkSettings& settings, GraphModelOptions const& options);
/// --normalize and --self-loops, the operator that a network multiplies by.
void add_operator_options(Command& command, std::string& normalize, std::string& self_loops);
/// `what_is_open`: "--grid auto".
void add_grid_options(Command& command, GridOptions& options, std::string_view what_is_open);
/// Throws UserError if a choice is to be made by seconds, and there is none. `is_open`: whether grid or schedule are.
void require_choice(GridOptions const& options, bool is_open, std::string_view what_is_open);

/// The schedule of the learning rate, which an epoch that is only timed does without.
void add_rate_schedule_options(Command& command, OptimizerOptions& options, std::string_view advice);
/// --betas, the decay rates of the moments of Adam.
void add_betas_option(Command& command, OptimizerOptions& options);
/// `unit`: "epoch" or "step"; `best`: what has the best weights ("epoch with the best validation accuracy").
void add_weight_options(Command& command, WeightOptions& options, std::string_view unit,
                        std::string_view best);
void add_checkpoint_options(Command& command, CheckpointOptions& options, std::string_view unit);

} // namespace orthant::cli
