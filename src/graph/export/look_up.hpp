#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Reads entries, wherever they are, of a list over all positions of an order that is spread over the ranks.

#include "graph/store/vertex_owners.hpp"
#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace orthant::graph {

/// result[i] := the list's entry wanted[i]. `mine`: this rank's part of the list,
/// PositionOwners::range(rank). Collective, every rank wants what it wants, at most 2^31 entries; in rounds
/// of bounded memory (exchange.hpp). Cost: 16 bytes there and 16 back for every entry of another rank.
[[nodiscard]] std::vector<std::int64_t> look_up(runtime::Communicator const& comm,
                                                PositionOwners const& owners,
                                                std::span<std::int64_t const> mine,
                                                std::span<std::int64_t const> wanted);

} // namespace orthant::graph
