// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/log.hpp"

#include "runtime/error.hpp"
#include "runtime/suggestion.hpp"

#include <array>
#include <atomic>
#include <mpi.h>
#include <mutex>
#include <set>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

namespace orthant::runtime {
namespace {

constexpr std::array<std::string_view, 6> level_words{"trace", "debug", "info", "warning", "error", "off"};

spdlog::level::level_enum to_spdlog(LogLevel level) {
  using namespace spdlog::level;
  constexpr std::array levels{trace, debug, info, warn, err, off};
  return levels[static_cast<std::size_t>(level)];
}

/// Rank in MPI_COMM_WORLD; empty if MPI has not started or has ended.
std::optional<int> rank_if_known() {
  int initialised = 0;
  int finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  if (initialised == 0 || finalised != 0) return std::nullopt;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

/// On a terminal, a line may replace a progress bar, which is then drawn again below.
std::string line_pattern(std::FILE* out) {
  return isatty(fileno(out)) != 0 ? "\r\033[K%v" : "%v";
}

} // namespace

LogLevel parse_log_level(std::string_view word) {
  if (word == "warn") return LogLevel::warning;
  for (std::size_t i = 0; i < level_words.size(); ++i)
    if (word == level_words[i]) return static_cast<LogLevel>(i);
  throw_user("'{}' is no log level (trace, debug, info, warning, error, off){}", word,
             did_you_mean(word, level_words));
}

struct Log::State {
  State(std::optional<int> given, std::FILE* out)
      : logger("orthant",
               std::make_shared<spdlog::sinks::stdout_sink_base<spdlog::details::console_mutex>>(out)),
        rank(given.value_or(unknown)) {
    logger.set_pattern(line_pattern(out));
    logger.set_level(spdlog::level::info);
    logger.flush_on(spdlog::level::trace);
  }

  int rank_now() {
    if (rank.load() == unknown) {
      auto const found = rank_if_known();
      if (!found) return 0; // looked up again in case MPI starts later
      rank.store(*found);
    }
    return rank.load();
  }

  static constexpr int unknown = -1;
  spdlog::logger logger;
  std::atomic<int> rank;
  std::mutex mutex;
  std::set<std::string> said; // texts printed by print_once
};

Log::Log(std::optional<int> rank, std::FILE* out) : state_(std::make_unique<State>(rank, out)) {}
Log::~Log() = default;

void Log::set_level(LogLevel level) {
  state_->logger.set_level(to_spdlog(level));
}

bool Log::prints(LogLevel level) const {
  return state_->logger.should_log(to_spdlog(level)) && (level >= LogLevel::warning || is_first_rank());
}

bool Log::is_first_rank() const {
  return state_->rank_now() == 0;
}

void Log::print(LogLevel level, std::string const& text) {
  auto const rank = state_->rank_now();
  auto const who = rank == 0 ? std::string() : fmt::format("rank {}: ", rank);
  auto const word = level == LogLevel::info
                        ? std::string()
                        : fmt::format("{}: ", level_words[static_cast<std::size_t>(level)]);
  state_->logger.log(to_spdlog(level), "orthant: {}{}{}", who, word, text);
}

void Log::print_once(std::string const& text) {
  {
    std::lock_guard const lock(state_->mutex);
    if (!state_->said.insert(text).second) return;
  }
  print(LogLevel::warning, text);
}

} // namespace orthant::runtime
