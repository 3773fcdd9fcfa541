#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// When a job's time is over: what the user says, or what Slurm says. Times are Unix times in seconds.

#include <array>
#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace orthant::runtime {

/// Seconds of "90", "90s", "15min", "2h", "1d", "1:30:00" or "2-12:00:00" (days-hours:minutes:seconds). Throws
/// UserError, naming `option`, for anything else, and for what is not more than zero.
[[nodiscard]] double parse_duration(std::string_view option, std::string_view text);

/// Seconds of what squeue prints as a job's remaining time, "1-02:03:04", "02:03:04" or "03:04"; none for
/// UNLIMITED, NOT_SET, INVALID or another word.
[[nodiscard]] std::optional<double> parse_slurm_time(std::string_view text);

/// What is asked of the surroundings, so that tests can answer.
struct TimeSources {
  std::function<char const*(char const*)> getenv;                  // nullptr if the variable is not set
  std::function<std::string(std::string const&)> squeue_time_left; // what squeue prints for a job
  double now = 0;
};
[[nodiscard]] TimeSources time_sources();
[[nodiscard]] double unix_time();
/// Seconds since this process was started (its libraries were loaded).
[[nodiscard]] double process_seconds();

/// When Slurm ends this job: SLURM_JOB_END_TIME, else `squeue -h -j $SLURM_JOB_ID -o %L`. None outside of Slurm
/// and without a limit.
[[nodiscard]] std::optional<double> slurm_end_time(TimeSources const& sources);

// Signals that ask a long job to end: SIGUSR1 (what a scheduler is told to send before the time limit), SIGTERM
// and SIGINT. While this object lives, the last of them is noted, and the job asks for it where it can stop. A
// second SIGTERM or SIGINT ends the process at once.

class StopSignals {
 public:
  /// Catches the signals. One object at a time. `answer`, a text that must outlive it, is written to stderr at the
  /// first SIGINT, which somebody at a terminal has sent; null: nothing is.
  explicit StopSignals(char const* answer = nullptr);
  /// Signals do again what they did before.
  ~StopSignals();
  StopSignals(StopSignals const&) = delete;
  StopSignals& operator=(StopSignals const&) = delete;

  /// The last signal that came, or 0.
  [[nodiscard]] int received() const;

 private:
  static constexpr std::array<int, 3> signals{SIGUSR1, SIGTERM, SIGINT};
  std::array<struct sigaction, signals.size()> before_{};
};

/// "SIGUSR1", "SIGTERM", "SIGINT", or "a signal".
[[nodiscard]] char const* name_of_signal(int signal);

} // namespace orthant::runtime
