// SPDX-License-Identifier: Apache-2.0
#include "graph/links/edge_split.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/random.hpp"

#include <algorithm>
#include <utility>

namespace orthant::graph {
namespace {

constexpr std::size_t kept = 2; // behind the parts of HeldOutEdges

class KeptEdges final : public EdgeStream {
 public:
  KeptEdges(std::unique_ptr<EdgeStream> all, EdgeSplit const& split, HeldOutEdges& held_out)
      : all_(std::move(all)),
        stream_(split.seed, runtime::Purpose::edge_split),
        split_(split),
        held_out_(held_out) {}

  bool next(EdgeBatch& batch) override {
    auto const has_batch = all_->next(batch);
    std::size_t num_kept = 0;
    for (std::size_t i = 0; i < batch.edges.size(); ++i) {
      auto const edge = batch.edges[i];
      if (auto const part = part_of(edge); part != kept) {
        held_out_[part].push_back(link_between(edge.source, edge.target));
        continue;
      }
      batch.edges[num_kept] = edge;
      if (!batch.weights.empty()) batch.weights[num_kept] = batch.weights[i];
      ++num_kept;
    }
    batch.edges.resize(num_kept);
    if (!batch.weights.empty()) batch.weights.resize(num_kept);
    return has_batch;
  }
  [[nodiscard]] Progress progress() const override { return all_->progress(); }

 private:
  [[nodiscard]] std::size_t part_of(Edge edge) const {
    if (edge.source == edge.target) return kept;
    auto const [smaller, larger] = std::minmax(edge.source, edge.target);
    auto const u =
        stream_.uniform<double>(static_cast<std::uint64_t>(smaller), static_cast<std::uint64_t>(larger));
    return u < split_.valid ? 0 : u < split_.valid + split_.test ? 1 : kept;
  }

  std::unique_ptr<EdgeStream> all_;
  runtime::RandomStream stream_;
  EdgeSplit split_;
  HeldOutEdges& held_out_;
};

} // namespace

void require_edge_split(EdgeSplit const& split) {
  if (split.valid < 0 || split.test < 0 || !(split.valid + split.test > 0) || !(split.valid + split.test < 1))
    runtime::throw_user(
        "--edge-split {},{}: the shares of edges for valid and test are at least 0, and together more than 0 "
        "and less than 1, such as 0.05,0.1",
        split.valid, split.test);
}

SourceWithoutHeldOut::SourceWithoutHeldOut(runtime::Communicator const& comm, GraphSource const& source,
                                           EdgeSplit const& split)
    : comm_(comm),
      source_(source),
      split_(split),
      facts_(source.facts()) {
  require_edge_split(split);
  if (facts_.is_directed)
    runtime::throw_user("--edge-split holds out edges of undirected graphs, and this one is directed: leave "
                        "out --edge-split or --directed");
  facts_.num_edges = -1; // until they have been read
}

std::unique_ptr<EdgeStream> SourceWithoutHeldOut::edges(std::int64_t batch_size) const {
  held_out_ = {};
  return std::make_unique<KeptEdges>(source_.edges(batch_size), split_, held_out_);
}

void SourceWithoutHeldOut::check_num_edges(std::int64_t num_read) const {
  auto const num_held_out =
      runtime::all_reduced(comm_, static_cast<std::int64_t>(held_out_[0].size() + held_out_[1].size()));
  source_.check_num_edges(num_read + num_held_out);
  if (num_read == 0)
    runtime::throw_user("--edge-split {},{} leaves no edge to train on: the graph is too small for it",
                        split_.valid, split_.test);
}

} // namespace orthant::graph
