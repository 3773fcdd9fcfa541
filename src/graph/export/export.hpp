#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A store as a graph source: everything back in original ids, so that it can be written in any format
// (write_graph.hpp). An undirected edge is given once, from the smaller id to the larger.

#include "graph/graph_source.hpp"
#include "graph/store/store_reader.hpp"
#include "runtime/comm/communicator.hpp"

#include <memory>

namespace orthant::graph {

/// `store` and `comm` must outlive the source. Collective. Memory: this rank's share of the ids
/// (8 bytes each), features and labels; the ids of its edges are asked of other ranks a batch at a time.
[[nodiscard]] std::unique_ptr<GraphSource> open_store_as_source(runtime::Communicator const& comm,
                                                                GraphStore const& store);

} // namespace orthant::graph
