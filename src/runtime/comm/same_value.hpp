#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Cross-rank agreement, for debug builds: what every rank of a group must know alike, such as a seed.

#include "runtime/comm/collectives.hpp"

#include <array>
#include <concepts>
#include <cstdint>

namespace orthant::runtime {

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
