#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// When a job's time is over: what the user says, or what Slurm says. Times are Unix times in seconds.

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

} // namespace orthant::runtime
