#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// End time of a job, as given by the user or by Slurm. Times are Unix times in seconds.

#include <array>
#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace orthant::runtime {

/// Seconds of "90", "90s", "15min", "2h", "1d", "1:30:00" or "2-12:00:00" (days-hours:minutes:seconds). Throws a UserError with `option`
/// for any other text, and for values that are not positive.
[[nodiscard]] double parse_duration(std::string_view option, std::string_view text);

/// Seconds of a remaining time as squeue prints it: "1-02:03:04", "02:03:04" or "03:04". Empty for UNLIMITED, NOT_SET, INVALID or another
/// word.
[[nodiscard]] std::optional<double> parse_slurm_time(std::string_view text);

/// Sources of times; tests replace them.
struct TimeSources {
  std::function<char const*(char const*)> getenv;                  // nullptr if the variable is not set
  std::function<std::string(std::string const&)> squeue_time_left; // output of squeue for a job
  double now = 0;
};
[[nodiscard]] TimeSources time_sources();
[[nodiscard]] double unix_time();
/// Seconds since the start of this process (since its libraries were loaded).
[[nodiscard]] double process_seconds();

/// Time at which Slurm ends this job: SLURM_JOB_END_TIME, otherwise `squeue -h -j $SLURM_JOB_ID -o %L`. Empty outside Slurm and without a
/// limit.
[[nodiscard]] std::optional<double> slurm_end_time(TimeSources const& sources);

// Signals that ask a long job to end: SIGUSR1 (which a scheduler can send before the time limit), SIGTERM and SIGINT. While this object
// exists, it records the last of these signals, and the job checks for it where it can stop. A second SIGTERM or SIGINT ends the process at
// once.

class StopSignals {
 public:
  /// Catches the signals. Only one object may exist at a time. `answer`, a text that must outlive the object, is written to stderr at the
  /// first SIGINT, which comes from a user at a terminal; null writes nothing.
  explicit StopSignals(char const* answer = nullptr);
  /// Restores the previous handlers.
  ~StopSignals();
  StopSignals(StopSignals const&) = delete;
  StopSignals& operator=(StopSignals const&) = delete;

  /// The last received signal, or 0.
  [[nodiscard]] int received() const;

 private:
  static constexpr std::array<int, 3> signals{SIGUSR1, SIGTERM, SIGINT};
  std::array<struct sigaction, signals.size()> before_{};
};

/// "SIGUSR1", "SIGTERM", "SIGINT", or "a signal".
[[nodiscard]] char const* name_of_signal(int signal);

} // namespace orthant::runtime
