// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/time_limit.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include <utility>

namespace orthant::runtime {
namespace {

auto const process_start = std::chrono::steady_clock::now();

std::optional<double> parse_number(std::string_view text) {
  double number = 0;
  auto const* const end = text.data() + text.size();
  auto const parsed = std::from_chars(text.data(), end, number);
  if (text.empty() || parsed.ec != std::errc{} || parsed.ptr != end || !std::isfinite(number) || number < 0)
    return std::nullopt;
  return number;
}

/// Integers separated by colons, at least two; the last counts seconds, the one before it minutes, and so on.
std::optional<double> parse_clock(std::string_view text) {
  double seconds = 0;
  int num_parts = 0;
  while (true) {
    auto const colon = text.find(':');
    auto const part = text.substr(0, colon);
    if (part.empty() || !std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; }))
      return std::nullopt;
    seconds = 60 * seconds + parse_number(part).value_or(0);
    ++num_parts;
    if (colon == std::string_view::npos) break;
    text.remove_prefix(colon + 1);
  }
  if (num_parts < 2 || num_parts > 3) return std::nullopt;
  return seconds;
}

std::optional<double> parse_days_and_clock(std::string_view text) {
  auto const dash = text.find('-');
  if (dash == std::string_view::npos) return parse_clock(text);
  auto const days = parse_number(text.substr(0, dash));
  auto const clock = parse_clock(text.substr(dash + 1));
  if (!days || !clock) return std::nullopt;
  return 86400 * *days + *clock;
}

std::optional<double> parse_with_unit(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 5> units{
      {{"min", 60}, {"m", 60}, {"s", 1}, {"h", 3600}, {"d", 86400}}};
  for (auto const& [unit, seconds] : units) {
    if (!text.ends_with(unit)) continue;
    auto const number = parse_number(text.substr(0, text.size() - unit.size()));
    return number ? std::optional(*number * seconds) : std::nullopt;
  }
  return parse_number(text);
}

std::string ask_squeue(std::string const& job) {
  // The id comes from Slurm; only digits and _ are passed to the shell. The other ranks wait for the result.
  if (job.empty() || !std::ranges::all_of(job, [](char c) { return (c >= '0' && c <= '9') || c == '_'; }))
    return {};
  auto const command = "timeout 10 squeue -h -j " + job + " -o %L 2>/dev/null";
  auto* const pipe = ::popen(command.c_str(), "r"); // NOLINT(cert-env33-c)
  if (pipe == nullptr) return {};
  std::array<char, 64> line{};
  std::string text =
      std::fgets(line.data(), static_cast<int>(line.size()), pipe) != nullptr ? line.data() : "";
  ::pclose(pipe);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' '))
    text.pop_back();
  return text;
}

} // namespace

double parse_duration(std::string_view option, std::string_view text) {
  auto const seconds =
      text.find(':') != std::string_view::npos ? parse_days_and_clock(text) : parse_with_unit(text);
  if (!seconds || *seconds <= 0)
    throw_user("{} {}: not a time; give one such as 90s, 15min, 2h, 1:30:00 or 2-12:00:00", option, text);
  return *seconds;
}

std::optional<double> parse_slurm_time(std::string_view text) {
  return parse_days_and_clock(text);
}

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

TimeSources time_sources() {
  TimeSources sources;
  sources.getenv = [](char const* name) { return std::getenv(name); };
  sources.squeue_time_left = ask_squeue;
  sources.now = unix_time();
  return sources;
}

double process_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - process_start).count();
}

std::optional<double> slurm_end_time(TimeSources const& sources) {
  if (auto const* const end = sources.getenv("SLURM_JOB_END_TIME"))
    if (auto const seconds = parse_number(end)) return seconds;
  auto const* const job = sources.getenv("SLURM_JOB_ID");
  if (job == nullptr) return std::nullopt;
  // A task of a job array has the id of the whole array in SLURM_JOB_ID.
  auto const* const array = sources.getenv("SLURM_ARRAY_JOB_ID");
  auto const* const task = sources.getenv("SLURM_ARRAY_TASK_ID");
  auto const id = array != nullptr && task != nullptr ? std::string(array) + "_" + task : std::string(job);
  auto const left = parse_slurm_time(sources.squeue_time_left(id));
  return left ? std::optional(sources.now + *left) : std::nullopt;
}

namespace {

std::atomic<int> received_signal = 0;
std::atomic<bool> has_asked = false; // whether SIGTERM or SIGINT has arrived
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler must not wait");

std::atomic<char const*> answer_to_interrupt = nullptr;
static_assert(std::atomic<char const*>::is_always_lock_free, "a signal handler must not wait");

extern "C" void note_signal(int signal) {
  received_signal.store(signal);
  if (signal == SIGUSR1) return;
  if (!has_asked.exchange(true)) {
    auto const* const answer = answer_to_interrupt.load();
    auto const before = errno; // restored below, because the interrupted code may read it
    if (signal == SIGINT && answer != nullptr)
      static_cast<void>(!write(STDERR_FILENO, answer, std::strlen(answer)));
    errno = before;
    return;
  }
  // A user who sends the signal twice does not want to wait for the end of a step.
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

} // namespace

StopSignals::StopSignals(char const* answer) {
  received_signal.store(0);
  answer_to_interrupt.store(answer);
  has_asked.store(false);
  // The handler uses its own stack. Products that oneDNN 2.6.3 compiles store numbers below the stack pointer, where the handler's frame
  // would be: 10 of 60 interrupted trainings ended with a corrupted heap (0 of 60 with OpenBLAS and with LIBXSMM; 0 of 150 with this
  // stack).
  constexpr std::size_t size = std::size_t{1} << 16;
  alignas(64) static std::array<std::byte, size> stack;
  stack_t own{};
  own.ss_sp = stack.data();
  own.ss_size = stack.size();
  auto const has_stack = sigaltstack(&own, nullptr) == 0;
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART | (has_stack ? SA_ONSTACK : 0);
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < signals.size(); ++i)
    sigaction(signals[i], &action, &before_[i]);
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < signals.size(); ++i)
    sigaction(signals[i], &before_[i], nullptr);
}

int StopSignals::received() const {
  return received_signal.load();
}

char const* name_of_signal(int signal) {
  switch (signal) {
  case SIGUSR1:
    return "SIGUSR1";
  case SIGTERM:
    return "SIGTERM";
  case SIGINT:
    return "SIGINT";
  default:
    return "a signal";
  }
}

} // namespace orthant::runtime
