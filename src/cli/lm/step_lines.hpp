#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a training of a language model says of its steps: lines of the metrics ("step", "eval") and progress.

#include "cli/lm/model_flops.hpp"
#include "cli/options/command.hpp"
#include "models/experts/expert_load.hpp"
#include "runtime/report/progress.hpp"

namespace orthant::cli {

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

} // namespace orthant::cli
