#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A store as a graph source: everything back in original ids, so that it can be written in any format
// (write_graph.hpp). An undirected edge is given once, from the smaller id to the larger.

#include "graph/graph_source.hpp"
#include "graph/store/distribution.hpp"
#include "graph/store/store_reader.hpp"
#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace orthant::graph {

// Reads entries, wherever they are, of a list over all positions of an order that is spread over the ranks.

/// result[i] := the list's entry wanted[i]. `mine`: this rank's part of the list,
/// PositionOwners::range(rank). Collective, every rank wants what it wants, at most 2^31 entries; in rounds
/// of bounded memory (exchange.hpp). Cost: 16 bytes there and 16 back for every entry of another rank.
[[nodiscard]] std::vector<std::int64_t> look_up(runtime::Communicator const& comm,
                                                PositionOwners const& owners,
                                                std::span<std::int64_t const> mine,
                                                std::span<std::int64_t const> wanted);

/// `store` and `comm` must outlive the source. Collective. Memory: this rank's share of the ids
/// (8 bytes each), features and labels; the ids of its edges are asked of other ranks a batch at a time.
[[nodiscard]] std::unique_ptr<GraphSource> open_store_as_source(runtime::Communicator const& comm,
                                                                GraphStore const& store);

} // namespace orthant::graph
