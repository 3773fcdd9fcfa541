// SPDX-License-Identifier: Apache-2.0
#include "cli/training/stop_condition.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/job/time_limit.hpp"

#include <algorithm>
#include <csignal>

namespace orthant::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// What the end of a job takes beside a checkpoint.
constexpr double margin_seconds = 5;
/// A checkpoint, before one has been measured.
constexpr double unmeasured_checkpoint_seconds = 15;

/// Why a rank wants to stop, as a number. All ranks take the largest. Signal s is time_is_over + s, so a signal on
/// any rank takes precedence over the time limit.
constexpr std::int64_t goes_on = 0;
constexpr std::int64_t time_is_over = 1;

double earlier(std::optional<double> a, double b) {
  return a ? std::min(*a, b) : b;
}

} // namespace

StopCondition::StopCondition(Context const& context, std::string_view unit)
    : context_(context),
      answer_(fmt::format(
          "\northant: interrupted: the training ends after this {}; once more ends it at once\n", unit)),
      signals_(context.world().is_root() && context.log().prints(runtime::LogLevel::info) ? answer_.c_str()
                                                                                          : nullptr),
      last_step_(Clock::now()) {}

StopCondition::StopCondition(Context const& context, std::string_view unit, std::string const& max_walltime)
    : StopCondition(context, unit) {
  auto end = context.world().is_root() ? runtime::slurm_end_time(runtime::time_sources()) : std::nullopt;
  if (!max_walltime.empty())
    end = earlier(end, runtime::unix_time() - runtime::process_seconds() +
                           runtime::parse_duration("--max-walltime", max_walltime));
  auto seconds = end.value_or(0);
  runtime::broadcast(runtime::host, context.world(), std::span(&seconds, 1), 0);
  if (seconds > 0) end_time_ = seconds;
}

bool StopCondition::is_time_over(double checkpoint_seconds) {
  auto const now = Clock::now();
  longest_step_ = std::max(longest_step_, std::chrono::duration<double>(now - last_step_).count());
  last_step_ = now;
  if (!end_time_) return false;
  // One more step, which may take half as long again, and a checkpoint, which may take twice as long.
  auto const needed = 1.5 * longest_step_ +
                      2 * (checkpoint_seconds > 0 ? checkpoint_seconds : unmeasured_checkpoint_seconds) +
                      margin_seconds;
  return runtime::unix_time() + needed > *end_time_;
}

bool StopCondition::agree(std::int64_t own) {
  auto const agreed = runtime::all_reduced(context_.world(), own, runtime::Reduction::max);
  if (agreed == goes_on) return false;
  signal_ = agreed == time_is_over ? 0 : static_cast<int>(agreed - time_is_over);
  reason_ = agreed == time_is_over ? "the time limit" : runtime::name_of_signal(signal_);
  return true;
}

bool StopCondition::is_due(bool ends_epoch, double checkpoint_seconds) {
  auto const signal = signals_.received();
  auto const counts = signal != 0 && (signal != SIGINT || ends_epoch);
  auto const is_over = is_time_over(checkpoint_seconds);
  return agree(counts ? time_is_over + signal : is_over ? time_is_over : goes_on);
}

bool StopCondition::is_due(bool ends_epoch) {
  auto const signal = signals_.received();
  return ends_epoch && agree(signal != 0 ? time_is_over + signal : goes_on);
}

} // namespace orthant::cli
