#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// When a training ends before its last epoch: a signal has come, or its time is nearly over. At Ctrl-C (SIGINT)
// the epoch ends first, and so it does at any signal if there are no checkpoints, from which the rest of an epoch
// could go on.

#include "cli/options/command.hpp"
#include "runtime/job/time_limit.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace orthant::cli {

class StopCondition {
 public:
  /// Of a training without checkpoints: catches signals from here on. `unit`: what it counts, "epoch" or "step".
  StopCondition(Context const& context, std::string_view unit);
  /// Of a training with checkpoints. `max_walltime`: --max-walltime, or empty; a time limit of Slurm counts, too.
  /// Throws UserError if that is no time. Collective.
  StopCondition(Context const& context, std::string_view unit, std::string const& max_walltime);

  /// To be asked after every step: whether to stop here. Checkpoints take about `checkpoint_seconds`; 0: nobody
  /// knows yet. The same on all ranks. Collective (8 bytes).
  [[nodiscard]] bool is_due(bool ends_epoch, double checkpoint_seconds);
  /// Without checkpoints: to be asked after every step, the same, but collective only where an epoch ends.
  [[nodiscard]] bool is_due(bool ends_epoch);
  /// "SIGUSR1", "the time limit"; empty if is_due() was never true.
  [[nodiscard]] std::string const& reason() const { return reason_; }
  /// The signal that was it, or 0.
  [[nodiscard]] int signal() const { return signal_; }

 private:
  /// Whether any rank wants to stop; this one has a reason or 0. Collective.
  [[nodiscard]] bool agree(std::int64_t own);
  [[nodiscard]] bool is_time_over(double checkpoint_seconds);

  Context const& context_;
  std::string answer_; // to Ctrl-C
  runtime::StopSignals signals_;
  std::optional<double> end_time_; // Unix time
  std::chrono::steady_clock::time_point last_step_;
  double longest_step_ = 0; // seconds
  std::string reason_;
  int signal_ = 0;
};

} // namespace orthant::cli
