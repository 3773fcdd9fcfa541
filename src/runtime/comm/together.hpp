#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Rank-local work that may fail, made to fail everywhere: after it, all ranks go on or all throw the same
// error.

#include "runtime/comm/communicator.hpp"
#include "runtime/error.hpp"

#include <concepts>
#include <optional>
#include <source_location>
#include <string>
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

} // namespace orthant::runtime
