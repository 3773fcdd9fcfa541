#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// orthant train-lm, from options to the final lines: the training, its grid, its speed in flop/s, and the loads of experts.

#include "cli/lm/train_lm_options.hpp"
#include "cli/options/command.hpp"
#include "models/lm/experts/expert_layer.hpp"
#include "models/lm/plan/transformer_settings.hpp"
#include "models/lm/training/language_model_cost.hpp"
#include "models/training/training_run.hpp"
#include "runtime/report/progress.hpp"
#include "tokens/token_file.hpp"

#include <optional>
#include <string>
#include <vector>

namespace orthant::cli {

// Floating-point operations that training a transformer needs per token, independent of the implementation (Kaplan et al.,
//
//   6 N             N parameters of matrices: one forward and two backward products, 2 flop each
//   12 L H S        attention scores and their products with the values, sequences of S tokens, L layers of width H
//
// Recomputation is not counted. The half of the scores that a causal mask leaves out is counted.

struct ModelFlops {
  double products = 0; // flop per token
  double attention = 0;

  [[nodiscard]] double per_token() const { return products + attention; }
};

[[nodiscard]] ModelFlops model_flops(models::TransformerSettings const& settings, std::int64_t sequence);

// Output per step: lines of the metrics ("step", "eval") and progress.

/// Speed of steps in tokens/s and flop/s.
struct StepSpeed {
  std::int64_t num_tokens = 0; // per step
  ModelFlops flops;            // per token
  double peak_flop_per_s = 0;  // of a large product on all ranks together

  [[nodiscard]] double tokens_per_second(double seconds) const {
    return static_cast<double>(num_tokens) / seconds;
  }
  [[nodiscard]] double flop_per_s(double seconds) const {
    return flops.per_token() * tokens_per_second(seconds);
  }
};

class StepLines {
 public:
  StepLines(Context& context, std::int64_t num_steps, std::int64_t log_every, StepSpeed const& speed);
  /// Writes a line of metrics for every step and evaluation. Prints progress every --log-every steps and after evaluations.
  void write(runtime::EpochRecord const& step, std::vector<models::ExpertLoad> const& loads);
  void finish() { progress_.finish(); }

 private:
  Context& context_;
  std::int64_t num_steps_;
  std::int64_t log_every_;
  StepSpeed speed_;
  std::optional<double> valid_loss_; // latest value, for the progress bar
  bool is_first_ = true;             // true before the first step of this run
  runtime::Progress progress_;
};

/// Runs the training and returns the exit status. Collective.
[[nodiscard]] int train_language_model(TrainLmOptions const& options, Context& context);

// --grid auto: the grid with the fastest predicted step on a machine, among those that fit in the memory of a rank.

struct LanguageGridQuestion {
  std::string grid = "auto";
  std::string machine; // empty: the assumed machine
  models::TransformerSettings const& model;
  models::SequenceSettings const& sequences;
  models::OptimizerSettings const& optimizer;
  std::int64_t num_candidates = 0;                     // --measure-top
  models::InnerAxes inner = {};                        // factors of the data groups
  std::optional<int> shares_weights_of = std::nullopt; // as of GridLimits
  int pipeline = 1;                                    // stages
};

/// Returns the fastest grids: as many as must be measured, at least one. If none fits in memory, returns the fastest of all, which the
/// memory check then refuses. T is the scalar of training. Same result on all ranks. Collective. Throws UserError if the machine is
/// unknown or there is no grid.
template<class T>
[[nodiscard]] std::vector<models::LanguageModelCost>
rank_language_grids(Context const& context, LanguageGridQuestion const& question);

struct ChosenLanguageGrid {
  pmm::GridShape shape;
  models::ContextExchange context_exchange = models::ContextExchange::key_values;
  nlohmann::ordered_json record; // for the metrics; null if nothing was measured
};

/// Returns the grid of --grid, or for auto the one that is predicted to be fastest, with the exchange of the model or the faster one. Same
/// result on all ranks. Collective. Throws UserError if --grid does not fit the job.
template<class T>
[[nodiscard]] ChosenLanguageGrid predicted_language_grid(Context const& context,
                                                         LanguageGridQuestion const& question);

/// The same with --measure-top: for auto, the grid that is measured to be fastest.
template<class T>
[[nodiscard]] ChosenLanguageGrid
choose_language_grid(Context const& context, LanguageGridQuestion const& question,
                     models::TrainSettings const& settings, tokens::TokenFile& file);

/// Ranks per node, of the node with the fewest. Collective.
[[nodiscard]] int ranks_per_node_of(runtime::Communicator const& world);
/// Prints over which ranks states are sharded, and what is pruned. No output without --zero and --prune-to.
void describe_shards(Context const& context, TrainLmOptions const& options, pmm::GridShape const& shape);

// Loads of experts: the report of a run, and the placement of experts by the loads of an earlier run.

/// Returns how often each expert was chosen, per layer with experts, before capacities dropped choices. Sums the last pass of each step
/// in the metrics file at `path`; several runs in a file are added up. Only rank 0 reads it. Collective. Throws UserError if the file
/// cannot be read, is no metrics file, or belongs to a model with other layers of experts.
[[nodiscard]] std::vector<std::vector<std::int64_t>>
read_expert_loads(runtime::Communicator const& world, std::string const& path,
                  models::TransformerSettings const& model);

/// Prints (describe_placement) or returns for the metrics (record_of_placement) the load of the fullest rank over the mean per layer,
/// with experts in order and as placed. No output, or null, if experts are in order.
void describe_placement(Context const& context, models::TransformerSettings const& model, int num_ranks);
[[nodiscard]] nlohmann::ordered_json record_of_placement(models::TransformerSettings const& model,
                                                         int num_ranks);

/// True if the loads come from a training pass, so at least one expert was chosen.
[[nodiscard]] bool has_chosen(std::vector<models::ExpertLoad> const& loads);
/// Prints the loads of the experts in the last pass.
void describe_experts(Context const& context, std::vector<models::ExpertLoad> const& loads);

} // namespace orthant::cli
