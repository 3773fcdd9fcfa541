#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Makes a failure of rank-local work a failure of all ranks: afterwards, either all ranks continue or all throw the same error.

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
/// Throws the failure of the lowest failing rank on every rank. Collective. Costs one 8-byte all_reduce if no rank failed.
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

/// Runs `work` on every rank of `comm` and returns its result. If it fails on any rank, throws the error of the lowest failing rank on all
/// ranks (UserError if it was one). `work` must not communicate. It may take any time: the watchdog knows that the rank is working.
/// Collective.
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

// Text between ranks. Collectives carry numbers, so that text travels as 64-bit words after its length. For rare, small texts
// (configurations, traces), not for data.

/// text := root's text on every rank. Collective.
void broadcast_text(Communicator const& comm, std::string& text, int root);

/// Calls take(piece) on rank 0 with the texts of all ranks in rank order, in pieces of at most `window_bytes` (a multiple of 8). One piece
/// may hold the texts of many ranks. Memory on rank 0: one window, and 24 bytes per rank. `take` must not throw. Collective.
void gather_text(Communicator const& comm, std::string text,
                 std::function<void(std::string_view)> const& take,
                 std::int64_t window_bytes = std::int64_t{1} << 24);

// Cross-rank agreement, for debug builds: checks values that must be equal on every rank of a group, such as a seed.

/// Throws Error on every rank of `comm`, with the smallest and the largest value, unless `value` is equal on all of them. Collective: one
/// all_reduce of 16 bytes.
template<std::integral T>
void require_same(Communicator const& comm, T value, char const* name, Here where = Here::current()) {
  auto const number = static_cast<std::int64_t>(value);
  std::array<std::int64_t, 2> extremes{number, ~number}; // ~ reverses the order and cannot overflow
  all_reduce(host, comm, std::span(extremes), Reduction::min, Wire::native, where);
  if (extremes[0] != ~extremes[1])
    throw_internal(fmt::format("ranks of {} disagree about {}: it is between {} and {}", comm.axis(), name,
                               extremes[0], ~extremes[1]),
                   where);
}

} // namespace orthant::runtime

/// require_same() for our own mistakes; compiled away with NDEBUG. Use it only during set-up, because the calls of a step are counted.
#ifdef NDEBUG
#define ORTHANT_ASSERT_SAME(comm, value) static_cast<void>(0)
#else
#define ORTHANT_ASSERT_SAME(comm, value) ::orthant::runtime::require_same((comm), (value), #value)
#endif
