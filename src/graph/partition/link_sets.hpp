#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The links that a store keeps for evaluations: edges that were held out (positives), and the same number of pairs that are not edges
// (negatives).
//
// Negatives are drawn once, uniformly and without repeats. A keyed bijection (runtime/numbers/random.hpp) orders all N (N-1) / 2 pairs. In
// this order, the first pairs that are not edges of the whole graph, including held-out edges, are the negatives of valid, and the next
// ones are the negatives of test. No pair is therefore in both sets, and the sets do not depend on the number of ranks.

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

// Selects the edges of an undirected graph that are held out for link prediction. The choice is a pure function of the seed and the ids of
// both ends, independent of the order of the input and the number of ranks. A store is then made from a source without these edges: neither
// A nor the degrees include them.
//
//   u := uniform(seed; smaller id, larger id)      valid if u < f_valid, else test if u < f_valid + f_test, else kept
//
// Self loops are not links, and are kept.

struct EdgeSplit {
  double valid = 0; // fractions of the edges
  double test = 0;
  std::uint64_t seed = 0;
};

/// Throws UserError unless both fractions are at least 0, one of them is positive, and edges remain for training.
void require_edge_split(EdgeSplit const& split);

/// The link between two vertices: the smaller id is the source if the sum of both ids is even, otherwise the larger one. One of the entries
/// A[u,v] and A[v,u] is therefore the link, and links are distributed evenly over the blocks in any order.
[[nodiscard]] constexpr Edge link_between(std::int64_t u, std::int64_t v) {
  auto const smaller = u < v ? u : v;
  auto const larger = u < v ? v : u;
  return (smaller + larger) % 2 == 0 ? Edge{smaller, larger} : Edge{larger, smaller};
}

/// Held-out edges by part (0: valid, 1: test), as links of original ids.
using HeldOutEdges = std::array<std::vector<Edge>, 2>;

/// `source` without the held-out edges. `source` must outlive the result. check_num_edges() is collective here.
class SourceWithoutHeldOut final : public GraphSource {
 public:
  /// Throws UserError if the graph is directed. Not collective.
  SourceWithoutHeldOut(runtime::Communicator const& comm, GraphSource const& source, EdgeSplit const& split);

  /// The edges that this rank's last stream has held out so far, including repeats, and both directions if the input lists both.
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
  [[nodiscard]] SplitShare split(std::int64_t number) const override { return source_.split(number); }
  [[nodiscard]] NameList const* vertex_names() const override { return source_.vertex_names(); }
  [[nodiscard]] SourceMemory memory() const override { return source_.memory(); }

 private:
  runtime::Communicator const& comm_;
  GraphSource const& source_;
  EdgeSplit split_;
  GraphFacts facts_;
  mutable HeldOutEdges held_out_; // filled while the stream is read
};

/// Largest number of vertices whose pairs a keyed bijection can order.
inline constexpr std::int64_t most_vertices_of_links = std::int64_t{1} << 31;

/// This rank's share of the links of original ids, each once (0: valid, 1: test).
struct LinkSets {
  std::array<std::vector<Edge>, 2> positives;
  std::array<std::vector<Edge>, 2> negatives;
};

/// Calls a function with both ends of every edge of this rank, the source of its link first. The owner of an edge is the owner of that end
/// (EdgeOwners).
using VisitEdges = std::function<void(std::function<void(std::int64_t, std::int64_t)> const&)>;

/// The links of a graph of `num_vertices` vertices. `visit_edges` visits its kept edges; `held_out` lists the other edges in any order and
/// with repeats.
/// Throws UserError if no edge was held out, if the graph has too many vertices, or if it has fewer pairs without an edge than held-out
/// edges. Cost: one look-up per edge of this rank and round. A round has at most 2^20 candidates per rank; usually there is one round.
/// Collective.
[[nodiscard]] LinkSets make_link_sets(runtime::Communicator const& comm, std::int64_t num_vertices,
                                      EdgeSplit const& split, HeldOutEdges const& held_out,
                                      VisitEdges const& visit_edges);

/// Writes the links to the store as sorted positions in order p1, and their numbers to the facts. `positions` are the positions in p1 of
/// this rank's block of vertices (block owners). Collective.
void write_link_sets(StoreWriter& writer, LinkSets const& sets, std::int64_t num_vertices,
                     std::span<std::int64_t const> positions, StoreFacts& facts);

} // namespace orthant::graph
