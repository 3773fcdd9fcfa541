#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// orthant train-lm, from options to the final lines.
//
// --grid auto of language models: the grid whose step takes least on a machine, of those that fit into the memory of a rank.
//
// Loads of experts: what a run says of them, and how an earlier run's place the experts of this one.

#include "cli/lm/train_lm_options.hpp"
#include "cli/options/command.hpp"
#include "models/lm/experts/expert_layer.hpp"
#include "models/lm/plan/transformer_settings.hpp"
#include "models/lm/training/language_model_cost.hpp"
#include "models/training/training_run.hpp"
#include "runtime/report/progress.hpp"
#include "tokens/token_file.hpp"

#include <string>
#include <vector>

namespace orthant::cli {

// The arithmetic that training a transformer asks for, per token, whatever a program does beside it (Kaplan et al.,
// arXiv 2001.08361; Chowdhery et al., arXiv 2204.02311, appendix B):
//
//   6 N             N parameters of matrices that multiply: forward once, backward twice, 2 flop each
//   12 L H S        scores and their products with the values, of S tokens each, in L layers of width H
//
// Recomputation is not counted, nor is the half of the scores that a causal mask leaves out subtracted.

struct ModelFlops {
  double products = 0; // per token
  double attention = 0;

  [[nodiscard]] double per_token() const { return products + attention; }
};

[[nodiscard]] ModelFlops model_flops(models::TransformerSettings const& settings, std::int64_t sequence);

// What a training of a language model says of its steps: lines of the metrics ("step", "eval") and progress.

/// How fast steps are in the words of the field.
struct StepSpeed {
  std::int64_t num_tokens = 0; // of a step
  ModelFlops flops;            // per token
  double peak_flop_per_s = 0;  // of a large product, on all ranks

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
  /// A line of metrics for every step and evaluation; progress every --log-every steps, and with evaluations.
  void write(runtime::EpochRecord const& step, std::vector<models::ExpertLoad> const& loads);
  void finish() { progress_.finish(); }

 private:
  Context& context_;
  std::int64_t num_steps_;
  std::int64_t log_every_;
  StepSpeed speed_;
  std::optional<double> valid_loss_; // the last: a bar keeps it
  bool is_first_ = true;             // step of this run
  runtime::Progress progress_;
};

/// Returns the exit status. Collective.
[[nodiscard]] int train_language_model(TrainLmOptions const& options, Context& context);

struct LanguageGridQuestion {
  std::string grid = "auto";
  std::string machine; // empty: the assumed one
  models::TransformerSettings const& model;
  models::SequenceSettings const& sequences;
  models::OptimizerSettings const& optimizer;
  std::int64_t num_candidates = 0; // --measure-top
  int expert_axis = 1;             // its ranks: a factor of the data groups
};

/// The fastest grids, as many as are to be measured, at least one; if none fits, the fastest one of all, which a check of memory will
/// refuse. T is the scalar of training. The same on all ranks. Collective. Throws UserError.
template<class T>
[[nodiscard]] std::vector<models::LanguageModelCost>
rank_language_grids(Context const& context, LanguageGridQuestion const& question);

struct ChosenLanguageGrid {
  pmm::GridShape shape;
  nlohmann::ordered_json record; // of the metrics; empty if nothing was measured
};

/// The first of them, or by --measure-top the fastest in fact. Collective. Throws UserError.
template<class T>
[[nodiscard]] ChosenLanguageGrid
choose_language_grid(Context const& context, LanguageGridQuestion const& question,
                     models::TrainSettings const& settings, tokens::TokenFile& file);

/// How often each expert was chosen, before capacities dropped any, by layers with experts: in the last pass of each step whose metrics these
/// are. A file may hold several runs, which are added up. Rank 0 reads it. Collective. Throws UserError if the file cannot be read, is no
/// record of a run, or is one of a model with other layers of experts.
[[nodiscard]] std::vector<std::vector<std::int64_t>>
read_expert_loads(runtime::Communicator const& world, std::string const& path,
                  models::TransformerSettings const& model);

/// The load of the fullest rank over the mean, with experts in order and as placed, per layer: says it, and as a record of the metrics. Nothing
/// (null) if experts are in order.
void describe_placement(Context const& context, models::TransformerSettings const& model, int num_ranks);
[[nodiscard]] nlohmann::ordered_json record_of_placement(models::TransformerSettings const& model,
                                                         int num_ranks);

/// Whether there was a pass of training that they are the loads of.
[[nodiscard]] bool has_chosen(std::vector<models::ExpertLoad> const& loads);
/// The load of the experts in the last pass.
void describe_experts(Context const& context, std::vector<models::ExpertLoad> const& loads);

} // namespace orthant::cli
