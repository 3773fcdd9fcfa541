#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Errors. `UserError` is a mistake of the user (exit status 2): one clear line that says what is wrong and what would be right. `Error` is
// any other failure (exit status 1) and carries rank, file and line.

#include <exception>
#include <fmt/format.h>
#include <mpi.h>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace orthant::runtime {

inline constexpr int exit_done = 0;
inline constexpr int exit_internal = 1;
inline constexpr int exit_user = 2;
inline constexpr int exit_requeue = 75; // ended early, with a checkpoint from which a new job can continue

class Error : public std::runtime_error {
 public:
  explicit Error(std::string const& message) : std::runtime_error(message) {}
  /// Exit status of the process if this error reaches main.
  [[nodiscard]] virtual int exit_status() const noexcept { return exit_internal; }
};

class UserError : public Error {
 public:
  explicit UserError(std::string const& message) : Error(message) {}
  [[nodiscard]] int exit_status() const noexcept override { return exit_user; }
};

/// The text of an exception on one line. (Texts of libraries may have several lines.)
[[nodiscard]] std::string describe(std::exception const& error);

/// Throws UserError with the formatted text: `throw_user("{} has no labels; give --random-labels C", path)`.
template<class... Args>
[[noreturn]] void throw_user(fmt::format_string<Args...> format, Args&&... args) {
  throw UserError(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error with this process's rank, the source location and the text.
[[noreturn]] void throw_internal(std::string_view text, std::source_location where);

namespace detail {
template<class... Parts>
std::string concatenate(Parts const&... parts) {
  std::string text;
  (fmt::format_to(std::back_inserter(text), "{}", parts), ...);
  return text;
}
} // namespace detail

/// Throws Error if `code`, the result of an MPI call, is not MPI_SUCCESS. The message names the call as `call`.
void check_mpi(int code, char const* call, std::source_location where = std::source_location::current());

} // namespace orthant::runtime

/// Always on. Throws Error with rank, file:line, the text of the condition and the parts: ORTHANT_REQUIRE(n > 0, "n is ", n).
#define ORTHANT_REQUIRE(condition, ...)                                                                      \
  do {                                                                                                       \
    if (!(condition))                                                                                        \
      ::orthant::runtime::throw_internal(                                                                    \
          ::orthant::runtime::detail::concatenate("required: " #condition __VA_OPT__("; ", ) __VA_ARGS__),   \
          std::source_location::current());                                                                  \
  } while (false)

/// Throws Error if an MPI call returns an error code.
#define ORTHANT_MPI(call) ::orthant::runtime::check_mpi((call), #call)
