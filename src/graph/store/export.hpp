#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A store as a graph source: all data are converted back to original ids, so that they can be written in any format (write_graph.hpp). An
// undirected edge is listed once, from the smaller id to the larger.

#include "graph/graph_source.hpp"
#include "graph/store/distribution.hpp"
#include "graph/store/store_reader.hpp"
#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace orthant::graph {

// Look-ups in a distributed list over all positions of an order.

/// result[i] := entry wanted[i] of the list. `mine` is this rank's part of the list, PositionOwners::range(rank). Every rank may request
/// different entries, at most 2^31. Works in rounds of bounded memory (exchange.hpp). Cost: 16 bytes to and 16 bytes from another rank for
/// every entry that it owns. Collective.
[[nodiscard]] std::vector<std::int64_t> look_up(runtime::Communicator const& comm,
                                                PositionOwners const& owners,
                                                std::span<std::int64_t const> mine,
                                                std::span<std::int64_t const> wanted);

/// Opens the source. `store` and `comm` must outlive it. Memory: this rank's share of the ids (8 bytes each), features and labels; the ids
/// of its edges are requested from other ranks batch by batch. Collective.
[[nodiscard]] std::unique_ptr<GraphSource> open_store_as_source(runtime::Communicator const& comm,
                                                                GraphStore const& store);

} // namespace orthant::graph
