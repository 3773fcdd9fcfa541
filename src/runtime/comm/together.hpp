#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Rank-local work that may fail, made to fail everywhere: after it, all ranks go on or all throw the same
// error.

#include "runtime/comm/collectives.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/error.hpp"

#include <array>
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

// Cross-rank agreement, for debug builds: what every rank of a group must know alike, such as a seed.

/// Throws Error on every rank of `comm`, with the smallest and the largest value, unless `value` is the same
/// on all of them. Collective: one all_reduce of 16 bytes.
template<std::integral T>
void require_same(Communicator const& comm, T value, char const* name, Here where = Here::current()) {
  auto const number = static_cast<std::int64_t>(value);
  std::array<std::int64_t, 2> extremes{number, ~number}; // ~ turns the order around, and cannot overflow
  all_reduce(host, comm, std::span(extremes), Reduction::min, Wire::native, where);
  if (extremes[0] != ~extremes[1])
    throw_internal(fmt::format("ranks of {} disagree about {}: it is between {} and {}", comm.axis(), name,
                               extremes[0], ~extremes[1]),
                   where);
}

} // namespace orthant::runtime

/// require_same() for our own mistakes; compiled away with NDEBUG. Only at set-up: the calls of a step are
/// counted.
#ifdef NDEBUG
#define ORTHANT_ASSERT_SAME(comm, value) static_cast<void>(0)
#else
#define ORTHANT_ASSERT_SAME(comm, value) ::orthant::runtime::require_same((comm), (value), #value)
#endif
