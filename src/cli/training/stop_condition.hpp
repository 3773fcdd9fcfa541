#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// When a training with checkpoints ends before its last epoch: a signal has come, or its time is nearly over.

#include "cli/options/command.hpp"
#include "runtime/job/stop_signals.hpp"

#include <chrono>
#include <optional>
#include <string>

namespace orthant::cli {

class StopCondition {
 public:
  /// Catches signals from here on. `max_walltime`: --max-walltime, or empty; a time limit of Slurm counts, too.
  /// Throws UserError if that is no time. Collective.
  StopCondition(Context const& context, std::string const& max_walltime);

  /// To be asked after every step: whether to stop here. Checkpoints take about `checkpoint_seconds`; 0: nobody
  /// knows yet. The same on all ranks. Collective (8 bytes).
  [[nodiscard]] bool is_due(double checkpoint_seconds);
  /// "SIGUSR1", "the time limit"; empty if is_due() was never true.
  [[nodiscard]] std::string const& reason() const { return reason_; }

 private:
  [[nodiscard]] bool is_time_over(double checkpoint_seconds);

  Context const& context_;
  runtime::StopSignals signals_;
  std::optional<double> end_time_; // Unix time
  std::chrono::steady_clock::time_point last_step_;
  double longest_step_ = 0; // seconds
  std::string reason_;
};

} // namespace orthant::cli
