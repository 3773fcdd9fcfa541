#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The links that a store keeps for evaluations: edges that were held out, and as many pairs that are no edges.
//
// Negatives are drawn once, uniformly and without repeats: a keyed bijection (runtime/numbers/random.hpp) puts all N (N-1) / 2
// pairs in an order. In this order the first pairs that are no edges of the whole graph, held-out ones included, are those of
// valid, and the next ones those of test. So no pair is in both, and neither set depends on the number of ranks.

#include "graph/graph_source.hpp"
#include "graph/store/store_arrays.hpp"
#include "runtime/comm/communicator.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace orthant::graph {

// Which edges of an undirected graph are held out for link prediction: a pure function of the seed and of the ids of both ends,
// so neither the order of the input nor the number of ranks matters. A source without those edges, which keeps them aside, is
// what a store is then made of: neither A nor the degrees know them.
//
//   u := uniform(seed; smaller id, larger id)      valid if u < f_valid, else test if u < f_valid + f_test, else kept
//
// Self loops are no links, and stay.

struct EdgeSplit {
  double valid = 0; // shares of the edges
  double test = 0;
  std::uint64_t seed = 0;
};

/// Throws UserError unless both shares are at least 0, one of them is not 0, and edges to train on are left.
void require_edge_split(EdgeSplit const& split);

/// A pair of vertices in the order in which a link names them: the smaller id first if the sum of both is even, else the larger
/// one. So of the entries A[u,v] and A[v,u] one is the link, and links are spread evenly over the blocks of any order.
[[nodiscard]] constexpr Edge link_between(std::int64_t u, std::int64_t v) {
  auto const smaller = u < v ? u : v;
  auto const larger = u < v ? v : u;
  return (smaller + larger) % 2 == 0 ? Edge{smaller, larger} : Edge{larger, smaller};
}

/// Held-out edges by part (0: valid, 1: test), as links of original ids.
using HeldOutEdges = std::array<std::vector<Edge>, 2>;

/// `source` without the edges that are held out. It must outlive the result. check_num_edges() is collective here.
class SourceWithoutHeldOut final : public GraphSource {
 public:
  /// Throws UserError if the graph is directed. Not collective.
  SourceWithoutHeldOut(runtime::Communicator const& comm, GraphSource const& source, EdgeSplit const& split);

  /// What this rank's last stream of edges has held out so far: repeats, and both directions if the input lists both.
  [[nodiscard]] HeldOutEdges const& held_out() const { return held_out_; }
  [[nodiscard]] EdgeSplit const& edge_split() const { return split_; }

  [[nodiscard]] GraphFacts const& facts() const override { return facts_; }
  [[nodiscard]] std::unique_ptr<EdgeStream> edges(std::int64_t batch_size) const override;
  [[nodiscard]] bool needs_resolving() const override { return source_.needs_resolving(); }
  void resolve(EdgeBatch& batch) const override { source_.resolve(batch); }
  void check_num_edges(std::int64_t num_read) const override;
  [[nodiscard]] std::unique_ptr<FeatureStream> features(std::int64_t batch_rows) const override {
    return source_.features(batch_rows);
  }
  [[nodiscard]] std::unique_ptr<LabelStream> labels(std::int64_t batch_rows) const override {
    return source_.labels(batch_rows);
  }
  [[nodiscard]] SplitShare split() const override { return source_.split(); }

 private:
  runtime::Communicator const& comm_;
  GraphSource const& source_;
  EdgeSplit split_;
  GraphFacts facts_;
  mutable HeldOutEdges held_out_; // filled as the stream is read
};

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
