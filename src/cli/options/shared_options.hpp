#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Options that all trainings share: model, grid, optimizer, learning rate, weights files, checkpoints and dense products; and presets. A training counts
// its work in epochs or in steps, and its help uses that word.

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

inline constexpr double largest_rate = 1e38; // finite in single precision

struct GridOptions {
  std::string grid = "auto"; // DxXxYxZ
  std::string machine;       // empty: the assumed machine
  std::int64_t measure_top = 0;
};

/// Architecture of a graph neural network.
struct GraphModelOptions {
  std::string model = "gcn";
  std::string aggregator = "auto"; // GraphSAGE and GraphConv
  std::string activation = "relu";
  std::optional<std::int64_t>
      propagation_steps;         // K of sgc (default 2), appnp (default 10) and tag (default 3)
  double teleport = 0.1;         // alpha of appnp and gcnii
  double theta = 0.5;            // gcnii only
  std::int64_t heads = 8;        // attention heads
  std::int64_t output_heads = 1; // of the last attention layer
  bool target_weights = false;   // rgat only
  std::int64_t bases = 0;        // rgcn only
  std::int64_t blocks = 0;       // rgcn only
};

struct OptimizerOptions {
  std::string optimizer = "adam";
  double lr = 0.01;
  std::string lr_schedule = "constant";
  std::int64_t warmup_steps = 0;
  double min_lr = 0;
  std::int64_t lr_step = 0; // --lr-schedule step
  double lr_factor = 0.1;   // --lr-schedule step and plateau
  std::int64_t lr_patience = 10;
  double lr_decay_share = 0.2; // --lr-schedule wsd
  std::vector<double> betas{0.9, 0.999};
  std::string moments = "fp32";
  std::int64_t jorge_interval = 10;
  std::int64_t jorge_tile = 1024;
  double weight_decay = 0;
  std::optional<double> clip_norm;
  std::string comm_dtype = "fp32"; // message_formats_of()
  std::int64_t seed = 0;
};

struct WeightOptions {
  std::string init_from;
  std::vector<std::string> init_skip; // patterns of names
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

/// Declares --model and the options of single models: --aggregator, --activation, --propagation-steps, --teleport, --theta, --heads,
/// --output-heads, --bases, --blocks.
void add_model_options(Command& command, GraphModelOptions& options);
/// The aggregator that the options name, or the model's usual one.
[[nodiscard]] models::Aggregator aggregator_of(GraphModelOptions const& options);
/// Sets model, aggregator, activation and the other architecture options in `settings`. Throws UserError if they contradict each other.
void set_model(models::NetworkSettings& settings, GraphModelOptions const& options);
/// Declares --normalize and --self-loops, which select the matrix that a network multiplies by.
void add_operator_options(Command& command, std::string& normalize, std::string& self_loops);
/// `what_is_open`: the options that leave a choice open, such as "--grid auto".
void add_grid_options(Command& command, GridOptions& options, std::string_view what_is_open);
/// Throws UserError if --machine or --measure-top is given although grid and schedule leave nothing to choose. `is_open`: true if one is
/// "auto".
void require_choice(GridOptions const& options, bool is_open, std::string_view what_is_open);

/// Declares the options of the learning-rate schedule. `advice` is appended to the help of --warmup-steps.
void add_rate_schedule_options(Command& command, OptimizerOptions& options, std::string_view advice);
/// Declares --optimizer, and the options of Jorge.
void add_optimizer_option(Command& command, OptimizerOptions& options);
/// Declares --betas, the decay rates of Adam's two moments.
void add_betas_option(Command& command, OptimizerOptions& options); // and --moments
/// `unit`: "epoch" or "step". `best`: description of the best weights, such as "epoch with the best validation accuracy".
void add_weight_options(Command& command, WeightOptions& options, std::string_view unit,
                        std::string_view best);
void add_checkpoint_options(Command& command, CheckpointOptions& options, std::string_view unit);

// Presets: named sets of options. A flag, the environment or a file overrides each of them.

struct Preset {
  std::string_view name;
  nlohmann::ordered_json options; // {"layers": 4, ..}: values by the options' names
};

[[nodiscard]] std::vector<std::string> names_of(std::span<Preset const> presets);
/// Options of the preset `name`, which must exist; otherwise throws Error.
[[nodiscard]] nlohmann::ordered_json const& options_of(std::span<Preset const> presets,
                                                       std::string_view name);

/// Calls set(name, value) for each option in `values` that the user did not give, and records it as set by the preset.
void set_unless_given(
    Context& context, nlohmann::ordered_json const& values,
    std::function<void(std::string const& name, nlohmann::ordered_json const& value)> const& set);

/// Adjusts the options that a preset gives to those that the user has given by a flag, the environment or a file. Only the user's own
/// options can contradict each other. The model itself is never adjusted, since the preset is named for it.
class PresetFit {
 public:
  PresetFit(Context& context, std::string preset) : context_(context), preset_(std::move(preset)) {}

  /// True if the option has the preset's value.
  [[nodiscard]] bool gives(char const* name) const;
  /// Sets the option to `value`, also in the run's record. Must only be called for an option whose value the preset gives.
  template<class T>
  void change(char const* name, T& option, T const& value) {
    if (option == value) return;
    if (is_used(name))
      changes_.push_back(fmt::format("--{} {} in place of {}", name, text_of(value), text_of(option)));
    context_.run_record.at("configuration")[name] = option = value;
  }
  /// Logs the changes in one line. Commands that do not train report only changes of the network.
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

// Options of dense products: --gemm-math selects the number format that fp32 products multiply in, --gemm-table the libraries that
// multiply.

void add_gemm_math_option(Command& command, std::string& math);

/// Sets the math of all dense products of this run; must be called before the first one. Throws UserError if this build does not support
/// `math`, or if `math` is not fp32 although `dtype` (the value of --compute-dtype) is another type than fp32.
void choose_gemm_math(std::string const& math, std::string const& dtype);

/// Declares --gemm-table, which library multiplies which products (pmm/gemm/gemm_choice.hpp).
void add_gemm_table_option(Command& command, std::string& path);

/// Chooses the libraries of all further products, the same on all ranks: from the table in the file `path` (built-in table if it is
/// empty) and the processor of rank 0. Adds the choice to the run's record. Collective. Throws UserError on all ranks if the file is no
/// such table.
void choose_gemm_libraries(Context& context, std::string const& path);

/// Entry of weights files and checkpoints that names the libraries: {"dense_libraries", ..}.
[[nodiscard]] std::pair<std::string, std::string> gemm_record();

/// Math modes of this build: "fp32", or "fp32", "tf32" and "bf16".
[[nodiscard]] std::vector<std::string> gemm_maths();

} // namespace orthant::cli
