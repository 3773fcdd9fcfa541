// SPDX-License-Identifier: Apache-2.0
#include "graph/partition/link_sets.hpp"

#include "graph/exchange.hpp"
#include "graph/store/distribution.hpp"
#include "graph/store/store_file.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/random.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace orthant::graph {
namespace {

constexpr std::size_t kept = 2; // index after the two parts of HeldOutEdges

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
  facts_.num_edges = -1; // unknown until they have been read
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

namespace {

using runtime::Communicator;

/// The records that all ranks send to this one. Collective.
template<class Record, class RankOf>
std::vector<Record> brought(Communicator const& comm, std::vector<Record> const& records,
                            RankOf const& rank_of) {
  std::vector<Record> result;
  std::size_t next = 0;
  exchange<Record>(
      comm,
      [&](Outbox<Record>& outbox) {
        for (; next < records.size() && !outbox.is_full(); ++next)
          outbox.push(rank_of(records[next]), records[next]);
        return next < records.size();
      },
      [&](std::span<Record const> arrived) { result.insert(result.end(), arrived.begin(), arrived.end()); });
  return result;
}

/// The sum of `mine` over lower ranks. Collective.
std::int64_t number_before(Communicator const& comm, std::size_t mine) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(comm.size()));
  counts[static_cast<std::size_t>(comm.rank())] = static_cast<std::int64_t>(mine);
  runtime::all_reduce(runtime::host, comm, std::span(counts));
  std::int64_t before = 0;
  for (int rank = 0; rank < comm.rank(); ++rank)
    before += counts[static_cast<std::size_t>(rank)];
  return before;
}

/// Pair number t of the pairs u < v, in the order t = v (v - 1) / 2 + u.
Edge pair_of(std::uint64_t t) {
  auto v = static_cast<std::uint64_t>((1 + std::sqrt(1 + 8 * static_cast<double>(t))) / 2);
  while (v * (v - 1) / 2 > t)
    --v; // corrects rounding of the root
  while (v * (v + 1) / 2 <= t)
    ++v;
  return link_between(static_cast<std::int64_t>(t - v * (v - 1) / 2), static_cast<std::int64_t>(v));
}

struct Candidate {
  Edge link;
  std::int64_t number = 0; // in the order of the bijection
};

/// Draws candidates in order, and keeps the pairs that are not edges.
class NegativeDrawer {
 public:
  /// `known` are this rank's held-out edges, sorted.
  NegativeDrawer(Communicator const& comm, std::int64_t num_vertices, std::uint64_t seed,
                 std::vector<Edge> const& known, VisitEdges const& visit_edges)
      : comm_(comm),
        owners_(num_vertices, comm.size()),
        num_pairs_(num_vertices * (num_vertices - 1) / 2),
        order_(static_cast<std::uint64_t>(num_pairs_),
               runtime::RandomStream(seed, runtime::Purpose::negative_links).key()),
        known_(known),
        visit_edges_(visit_edges) {}

  /// The first pairs in the order, distributed to the sets one after the other; counts[s] pairs go to set s. Collective.
  [[nodiscard]] std::array<std::vector<Edge>, 2> draw(std::array<std::int64_t, 2> const& counts) {
    std::array<std::vector<Edge>, 2> sets;
    auto const num_wanted = counts[0] + counts[1];
    std::int64_t num_found = 0;
    while (num_found < num_wanted) {
      auto const found = next_round(num_wanted - num_found);
      auto number = num_found + number_before(comm_, found.size());
      for (auto const& candidate : found) {
        if (number < counts[0])
          sets[0].push_back(candidate.link);
        else if (number < num_wanted)
          sets[1].push_back(candidate.link);
        ++number;
      }
      num_found += runtime::all_reduced(comm_, static_cast<std::int64_t>(found.size()));
      if (num_found < num_wanted && begin_ == num_pairs_)
        runtime::throw_user("--edge-split holds out {} edges and needs as many pairs that are no edges, but "
                            "the graph has only "
                            "{}: give smaller shares",
                            num_wanted, num_found);
    }
    return sets;
  }

 private:
  /// The pairs without an edge among the next candidates: this rank's share of the round, in order.
  [[nodiscard]] std::vector<Candidate> next_round(std::int64_t num_missing) {
    constexpr std::int64_t most_per_rank = std::int64_t{1} << 20, spare_share = 16, spare = 64;
    auto const num_drawn = std::min(
        {num_missing + num_missing / spare_share + spare, num_pairs_ - begin_, most_per_rank * comm_.size()});
    auto const mine = runtime::balanced_range(num_drawn, comm_.size(), comm_.rank());
    std::vector<Candidate> drawn;
    for (auto i = begin_ + mine.begin; i < begin_ + mine.end; ++i)
      drawn.push_back({pair_of(order_(static_cast<std::uint64_t>(i))), i});
    auto const here = without_edges(brought(comm_, drawn, [&](Candidate const& candidate) {
      return owners_.home_of(static_cast<std::uint64_t>(candidate.link.source)).rank;
    }));
    auto back = brought(comm_, here, [&](Candidate const& candidate) {
      return static_cast<int>(runtime::balanced_part(num_drawn, comm_.size(), candidate.number - begin_));
    });
    std::ranges::sort(back, {}, &Candidate::number);
    begin_ += num_drawn;
    return back;
  }

  [[nodiscard]] std::vector<Candidate> without_edges(std::vector<Candidate> candidates) const {
    std::ranges::sort(candidates, {}, &Candidate::link);
    std::vector<bool> is_edge(candidates.size());
    visit_edges_([&](std::int64_t first, std::int64_t second) {
      auto const found = std::ranges::lower_bound(candidates, Edge{first, second}, {}, &Candidate::link);
      if (found != candidates.end() && found->link == Edge{first, second})
        is_edge[static_cast<std::size_t>(found - candidates.begin())] = true;
    });
    std::vector<Candidate> others;
    for (std::size_t i = 0; i < candidates.size(); ++i)
      if (!is_edge[i] && !std::ranges::binary_search(known_, candidates[i].link))
        others.push_back(candidates[i]);
    return others;
  }

  Communicator const& comm_;
  EdgeOwners owners_;
  std::int64_t num_pairs_;
  runtime::KeyedBijection order_;
  std::vector<Edge> const& known_;
  VisitEdges const& visit_edges_;
  std::int64_t begin_ = 0; // first candidate of the next round
};

void sort_and_merge(std::vector<Edge>& links) {
  std::ranges::sort(links);
  links.erase(std::ranges::unique(links).begin(), links.end());
}

/// Replaces ids by positions, and sorts over all ranks, in the chunks that ranks write. Collective.
std::vector<Edge> to_sorted_positions(Communicator const& comm, std::vector<Edge> const& links,
                                      std::int64_t num_vertices, std::span<std::int64_t const> positions,
                                      std::int64_t num_links) {
  auto const first = runtime::balanced_range(num_vertices, comm.size(), comm.rank()).begin;
  auto const owner_of = [&](std::int64_t i) { return block_owner(num_vertices, comm.size(), i); };
  auto const position = [&](std::int64_t id) { return positions[static_cast<std::size_t>(id - first)]; };
  auto placed = brought(comm, links, [&](Edge const& link) { return owner_of(link.source); });
  for (auto& link : placed)
    link.source = position(link.source);
  placed = brought(comm, placed, [&](Edge const& link) { return owner_of(link.target); });
  for (auto& link : placed)
    link.target = position(link.target);
  auto sorted = brought(comm, placed, [&](Edge const& link) { return owner_of(link.source); });
  std::ranges::sort(sorted);
  std::vector<Candidate> numbered;
  auto number = number_before(comm, sorted.size());
  for (auto const& link : sorted)
    numbered.push_back({link, number++});
  PositionOwners const writers{num_links, comm.size()};
  auto mine =
      brought(comm, numbered, [&](Candidate const& candidate) { return writers.owner(candidate.number); });
  std::ranges::sort(mine, {}, &Candidate::number);
  sorted.clear();
  for (auto const& candidate : mine)
    sorted.push_back(candidate.link);
  return sorted;
}

template<class T>
void write_rows(StoreWriter& writer, std::string const& name, std::vector<Edge> const& links,
                std::int64_t begin) {
  std::vector<T> first, second;
  for (auto const& link : links) {
    first.push_back(static_cast<T>(link.source));
    second.push_back(static_cast<T>(link.target));
  }
  writer.write(name, 0, begin, std::span<T const>(first));
  writer.write(name, 1, begin, std::span<T const>(second));
}

} // namespace

LinkSets make_link_sets(Communicator const& comm, std::int64_t num_vertices, EdgeSplit const& split,
                        HeldOutEdges const& held_out, VisitEdges const& visit_edges) {
  if (num_vertices > most_vertices_of_links)
    runtime::throw_user("--edge-split is for graphs of at most {} vertices so far, and this one has {}",
                        most_vertices_of_links, num_vertices);
  EdgeOwners const owners(num_vertices, comm.size());
  LinkSets sets;
  std::array<std::int64_t, 2> counts{};
  std::vector<Edge> known;
  for (std::size_t part = 0; part < counts.size(); ++part) {
    sets.positives[part] = brought(comm, held_out[part], [&](Edge const& link) {
      return owners.home_of(static_cast<std::uint64_t>(link.source)).rank;
    });
    sort_and_merge(sets.positives[part]);
    counts[part] = runtime::all_reduced(comm, static_cast<std::int64_t>(sets.positives[part].size()));
    known.insert(known.end(), sets.positives[part].begin(), sets.positives[part].end());
  }
  for (auto const& [part, share] : {std::pair(0U, split.valid), std::pair(1U, split.test)})
    if (share > 0 && counts[part] == 0)
      runtime::throw_user("--edge-split {},{} holds out no edge for {}: give larger shares", split.valid,
                          split.test, part == 0 ? "valid" : "test");
  std::ranges::sort(known);
  sets.negatives = NegativeDrawer(comm, num_vertices, split.seed, known, visit_edges).draw(counts);
  return sets;
}

void write_link_sets(StoreWriter& writer, LinkSets const& sets, std::int64_t num_vertices,
                     std::span<std::int64_t const> positions, StoreFacts& facts) {
  auto const& comm = writer.comm();
  auto const is_wide = num_vertices > std::int64_t{std::numeric_limits<std::int32_t>::max()} + 1;
  for (auto const part : {Split::valid, Split::test})
    for (auto const kind : {LinkKind::positive, LinkKind::negative}) {
      auto const& all = kind == LinkKind::positive ? sets.positives : sets.negatives;
      auto const& links = all[static_cast<std::size_t>(part) - 1];
      auto const count = runtime::all_reduced(comm, static_cast<std::int64_t>(links.size()));
      facts.num_held_out[static_cast<std::size_t>(part)] = count;
      if (count == 0) continue;
      auto const mine = to_sorted_positions(comm, links, num_vertices, positions, count);
      auto const name = links_array(part, kind);
      writer.create_array(name, is_wide ? runtime::Hdf5Type::int64 : runtime::Hdf5Type::int32, {2, count});
      auto const begin = PositionOwners{count, comm.size()}.range(comm.rank()).begin;
      runtime::together(comm, [&] {
        if (is_wide)
          write_rows<std::int64_t>(writer, name, mine, begin);
        else
          write_rows<std::int32_t>(writer, name, mine, begin);
      });
    }
}

} // namespace orthant::graph
