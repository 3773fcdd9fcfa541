#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which edges of an undirected graph are held out for link prediction: a pure function of the seed and of the ids of both ends,
// so neither the order of the input nor the number of ranks matters. A source without those edges, which keeps them aside, is
// what a store is then made of: neither A nor the degrees know them.
//
//   u := uniform(seed; smaller id, larger id)      valid if u < f_valid, else test if u < f_valid + f_test, else kept
//
// Self loops are no links, and stay.

#include "graph/graph_source.hpp"
#include "runtime/comm/communicator.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace orthant::graph {

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

} // namespace orthant::graph
