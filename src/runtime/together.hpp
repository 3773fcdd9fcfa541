#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Rank-local work that may fail, made to fail everywhere: after it, all ranks go on or all throw the same
// error.

#include "runtime/communicator.hpp"
#include "runtime/error.hpp"

#include <concepts>
#include <optional>
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
std::optional<LocalFailure> failure_of(Work&& work) {
  try {
    work();
  } catch (Error const& error) {
    return LocalFailure{error.what(), error.exit_status() == exit_user};
  } catch (std::exception const& error) {
    return LocalFailure{error.what(), false};
  }
  return std::nullopt;
}
} // namespace detail

/// Runs `work` on every rank of `comm`, then agrees. `work` must not communicate. Returns what `work`
/// returns. Throws the lowest failing rank's error on all ranks, UserError where it was one. Collective.
template<std::invocable Work>
auto together(Communicator const& comm, Work&& work) {
  using Result = std::invoke_result_t<Work>;
  if constexpr (std::is_void_v<Result>) {
    detail::agree(comm, detail::failure_of(work));
  } else {
    std::optional<Result> result;
    detail::agree(comm, detail::failure_of([&] { result.emplace(work()); }));
    return std::move(*result);
  }
}

} // namespace orthant::runtime
