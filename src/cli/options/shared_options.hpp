#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What all trainings take: optimizer and learning rate, files of weights, checkpoints. A training counts its
// work in epochs or in steps, and its help says so.
//
// Presets: named sets of options, each of which a flag, the environment or a file overrides.

#include "cli/options/command.hpp"
#include "models/gnn/plan/network_settings.hpp"

#include <fmt/format.h>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
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

struct Preset {
  std::string_view name;
  nlohmann::ordered_json options; // {"layers": 4, ..}: values by the options' names
};

[[nodiscard]] std::vector<std::string> names_of(std::span<Preset const> presets);
/// The options of the preset of that name. Error if there is none.
[[nodiscard]] nlohmann::ordered_json const& options_of(std::span<Preset const> presets,
                                                       std::string_view name);

/// Calls set(name, value) for those of `values` that nobody gave; the run's record has them as the preset's.
void set_unless_given(
    Context& context, nlohmann::ordered_json const& values,
    std::function<void(std::string const& name, nlohmann::ordered_json const& value)> const& set);

/// What a preset gives bends to what the user has given, by a flag, the environment or a file: only the user's own options
/// contradict each other. The model is the user's: it is what a preset is named for.
class PresetFit {
 public:
  PresetFit(Context& context, std::string preset) : context_(context), preset_(std::move(preset)) {}

  /// Whether the option has the preset's value.
  [[nodiscard]] bool gives(char const* name) const;
  /// The option := another value, in the run's record, too. Only for one that the preset gives.
  template<class T>
  void change(char const* name, T& option, T const& value) {
    if (option == value) return;
    if (is_used(name))
      changes_.push_back(fmt::format("--{} {} in place of {}", name, text_of(value), text_of(option)));
    context_.run_record.at("configuration")[name] = option = value;
  }
  /// Says what has changed, in one line: for a command that does not train, in its network.
  void tell() const;

 private:
  [[nodiscard]] bool is_used(std::string_view name) const;
  template<class T>
  [[nodiscard]] static std::string text_of(T const& value) {
    if constexpr (std::is_floating_point_v<T>)
      return fmt::format("{:.6g}", value);
    else
      return fmt::format("{}", value);
  }

  Context& context_;
  std::string preset_;
  std::vector<std::string> changes_;
};

} // namespace orthant::cli
