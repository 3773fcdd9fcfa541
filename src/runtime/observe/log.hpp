#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What Orthant says beside its results, on stderr. Rank 0 speaks for the job; the other ranks only warn,
// under their number: `orthant: rank 3: warning: ...`.

#include <cstdint>
#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace orthant::runtime {

enum class LogLevel : std::uint8_t { trace, debug, info, warning, error, off };

/// "trace", "debug", "info", "warning" (or "warn"), "error", "off". Throws UserError for any other word.
[[nodiscard]] LogLevel parse_log_level(std::string_view word);

/// Any thread may log. One is made per program (Instruments) and lent.
class Log {
 public:
  /// `rank` none: this process's rank in MPI_COMM_WORLD, looked up at its first line (0 where MPI does not
  /// run).
  explicit Log(std::optional<int> rank = std::nullopt, std::FILE* out = stderr);
  ~Log();

  void set_level(LogLevel level);
  /// Whether this rank would print a line of this level.
  [[nodiscard]] bool prints(LogLevel level) const;

  template<class... Args>
  void debug(fmt::format_string<Args...> format, Args&&... args) {
    if (prints(LogLevel::debug)) print(LogLevel::debug, fmt::format(format, std::forward<Args>(args)...));
  }
  template<class... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) {
    if (prints(LogLevel::info)) print(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
  }
  template<class... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) {
    if (prints(LogLevel::warning)) print(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
  }
  /// A warning that rank 0 prints the first time it is given, however often and wherever it is given again:
  /// for paths that fall back. Cheap enough for a path that is taken once a step, not for an inner loop.
  template<class... Args>
  void warn_once(fmt::format_string<Args...> format, Args&&... args) {
    if (is_first_rank() && prints(LogLevel::warning))
      print_once(fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  struct State;
  [[nodiscard]] bool is_first_rank() const;
  void print(LogLevel level, std::string const& text);
  void print_once(std::string const& text);
  std::unique_ptr<State> state_;
};

} // namespace orthant::runtime
