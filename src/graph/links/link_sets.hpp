#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The links that a store keeps for evaluations: edges that were held out, and as many pairs that are no edges.
//
// Negatives are drawn once, uniformly and without repeats: a keyed bijection (runtime/numbers/bijection.hpp) puts all N (N-1) / 2
// pairs in an order. In this order the first pairs that are no edges of the whole graph, held-out ones included, are those of
// valid, and the next ones those of test. So no pair is in both, and neither set depends on the number of ranks.

#include "graph/links/edge_split.hpp"
#include "graph/store/store_writer.hpp"

#include <functional>
#include <span>

namespace orthant::graph {

/// More vertices have more pairs than a bijection puts in order.
inline constexpr std::int64_t most_vertices_of_links = std::int64_t{1} << 31;

/// This rank's share of the links of original ids, each once; 0: valid, 1: test.
struct LinkSets {
  std::array<std::vector<Edge>, 2> positives;
  std::array<std::vector<Edge>, 2> negatives;
};

/// Calls a function with the ends of every edge of this rank: the owner of an edge is that of the first end of its link
/// (EdgeOwners), and the first end is named first.
using VisitEdges = std::function<void(std::function<void(std::int64_t, std::int64_t)> const&)>;

/// The links of a graph of `num_vertices`, whose kept edges `visit_edges` shows, and whose other edges `held_out` lists in any
/// order and with repeats. Throws UserError if no edge was held out, if the graph has too many vertices, or fewer pairs that are
/// no edges than edges that are held out. Cost: a look-up for each edge of this rank and round; rounds have at most 2^20
/// candidates per rank, usually there is one. Collective.
[[nodiscard]] LinkSets make_link_sets(runtime::Communicator const& comm, std::int64_t num_vertices,
                                      EdgeSplit const& split, HeldOutEdges const& held_out,
                                      VisitEdges const& visit_edges);

/// Writes them to the store as positions in order p1, sorted, and their numbers to the facts. `positions`: in p1, of this rank's
/// block of vertices (block owners). Collective.
void write_link_sets(StoreWriter& writer, LinkSets const& sets, std::int64_t num_vertices,
                     std::span<std::int64_t const> positions, StoreFacts& facts);

} // namespace orthant::graph
