#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// orthant train-lm, from options to the final lines.

#include "cli/lm/train_lm_options.hpp"
#include "cli/options/command.hpp"
#include "models/lm/experts/expert_layer.hpp"
#include "models/lm/plan/transformer_settings.hpp"
#include "runtime/report/progress.hpp"

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

} // namespace orthant::cli
