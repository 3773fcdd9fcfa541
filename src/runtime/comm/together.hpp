#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Rank-local work that may fail, made to fail everywhere: after it, all ranks go on or all throw the same
// error.

#include "runtime/comm/communicator.hpp"
#include "runtime/error.hpp"

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>

namespace orthant::runtime {

namespace detail {
struct LocalFailure {
  std::string message;
  bool is_users_mistake = false;
};
/// Throws the failure of the lowest rank that has one, on every rank. Collective. One 8-byte all_reduce where
/// all is well.
void agree(Communicator const& comm, std::optional<LocalFailure> const& failure);

template<class Work>
std::optional<LocalFailure> failure_of(Communicator const& comm, std::source_location where, Work&& work) {
  try {
    WorkingScope const working(comm.instruments().position, where);
    work();
  } catch (Error const& error) {
    return LocalFailure{error.what(), error.exit_status() == exit_user};
  } catch (std::exception const& error) {
    return LocalFailure{describe(error), false};
  }
  return std::nullopt;
}
} // namespace detail

/// Runs `work` on every rank of `comm`, then agrees. `work` must not communicate. It may take one rank as
/// long as it needs: the watchdog knows that the rank works. Returns what `work` returns. Throws the lowest
/// failing rank's error on all ranks, UserError where it was one. Collective.
template<std::invocable Work>
auto together(Communicator const& comm, Work&& work,
              std::source_location where = std::source_location::current()) {
  using Result = std::invoke_result_t<Work>;
  if constexpr (std::is_void_v<Result>) {
    detail::agree(comm, detail::failure_of(comm, where, work));
  } else {
    std::optional<Result> result;
    detail::agree(comm, detail::failure_of(comm, where, [&] { result.emplace(work()); }));
    return std::move(*result);
  }
}

// Text between ranks. Collectives carry numbers, so it travels as 64-bit words, its length first. For what
// happens once a run (configurations, traces), not for data.

/// text := root's text on every rank. Collective.
void broadcast_text(Communicator const& comm, std::string& text, int root);

/// Hands the texts of all ranks, one rank's after the other's, to take(piece) on rank 0, in pieces of at most
/// `window_bytes` (a multiple of 8) each. A window of the whole holds the texts of many ranks where they are
/// short. Memory on rank 0: one window, and 24 bytes a rank. `take` must not throw. Collective.
void gather_text(Communicator const& comm, std::string text,
                 std::function<void(std::string_view)> const& take,
                 std::int64_t window_bytes = std::int64_t{1} << 24);

} // namespace orthant::runtime
