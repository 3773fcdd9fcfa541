#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Text between ranks. Collectives carry numbers, so it travels as 64-bit words, its length first. For what
// happens once a run (configurations, traces), not for data.

#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace orthant::runtime {

/// text := root's text on every rank. Collective.
void broadcast_text(Communicator const& comm, std::string& text, int root);

/// Hands the texts of all ranks, one rank's after the other's, to take(piece) on rank 0, in pieces of at most
/// `window_bytes` (a multiple of 8) each. A window of the whole holds the texts of many ranks where they are
/// short. Memory on rank 0: one window, and 24 bytes a rank. `take` must not throw. Collective.
void gather_text(Communicator const& comm, std::string text,
                 std::function<void(std::string_view)> const& take,
                 std::int64_t window_bytes = std::int64_t{1} << 24);

} // namespace orthant::runtime
