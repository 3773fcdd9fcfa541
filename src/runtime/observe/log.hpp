#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Messages of Orthant other than its results, on stderr. Rank 0 prints all messages for the job; the other ranks print only warnings, with
// their number: `orthant: rank 3: warning: ...`.

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

/// Log of the process. Any thread may log. There is one per program (Instruments), and others refer to it.
class Log {
 public:
  /// If `rank` is empty, the first line looks up this process's rank in MPI_COMM_WORLD (0 if MPI does not run).
  explicit Log(std::optional<int> rank = std::nullopt, std::FILE* out = stderr);
  ~Log();

  void set_level(LogLevel level);
  /// True if this rank would print a line of this level.
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
  /// A warning that rank 0 prints only the first time, no matter how often and where it is repeated: for fallbacks. Cheap enough for one
  /// call per step, but not for an inner loop.
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
