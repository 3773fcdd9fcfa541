#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The edges of a graph, distributed over the ranks' memory with 8 bytes each (below 2^32 vertices), or 12 with a value: a weight, the
// number of a relation, or the number of the edge's features. Repeats are merged, and any placement can relabel the edges.
//
// An undirected edge is stored once, at the owner of one of its ends: the smaller or the larger id, depending on their parity, so that the
// edges of a hub are distributed. A directed edge is stored at the owner of its target, the row of A. for_each_edge() sends each edge to
// the owner of its other end, where the positions of both ends are known. No rank knows the positions of all vertices.

#include "graph/chunk_pool.hpp"
#include "graph/exchange.hpp"
#include "graph/graph_source.hpp"
#include "graph/partition/edge_feature_rows.hpp"
#include "graph/partition/placement.hpp"
#include "graph/radix_sort.hpp"
#include "graph/store/distribution.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <tuple>
#include <vector>

namespace orthant::graph {

/// Called with the completed fraction of a step, 0..1.
using StepProgress = std::function<void(double)>;

namespace detail {
template<bool has_values>
struct MaybeValue {
  float value = 1; // the weight, the number of the relation, which a float holds exactly, or EdgeFeatureRows'
};
template<>
struct MaybeValue<false> {
  static constexpr float value = 1;
};
} // namespace detail

/// Id is uint32 for graphs of at most 2^32 vertices, otherwise uint64.
template<class Id, bool has_values>
class EdgeStore {
 public:
  /// `local`: one end of the edge, as a local number of the rank that owns it; the other end is an id. In a directed graph `local` is the
  /// target.
  struct Stored : detail::MaybeValue<has_values> {
    Id local;
    Id other;
  };
  /// Positions of both ends of an edge in both orders.
  struct Placed : detail::MaybeValue<has_values> {
    std::array<Id, 2> local; // in p1 and p2
    std::array<Id, 2> other;
  };

  EdgeStore(runtime::Communicator const& comm, std::int64_t num_vertices, bool is_directed, ChunkPool& pool)
      : comm_(comm),
        owners_(static_cast<std::uint64_t>(num_vertices), comm.size()),
        is_directed_(is_directed),
        buckets_(pool, static_cast<std::size_t>((owners_.num_local() + bucket_size - 1) >> bucket_bits)),
        degrees_(owners_.num_local()) {}

  /// Reads all edges and merges repeats. Returns the number of edges read by all ranks. `features`: keeps those of the edges, which must be
  /// distinct; otherwise throws UserError. Null without features. Collective.
  std::int64_t collect(GraphSource const& source, EdgeRules const& rules, StepProgress const& progress,
                       EdgeFeatureRows* features = nullptr);

  /// Number of entries of A over all ranks: an undirected edge counts twice, a self loop once.
  [[nodiscard]] std::int64_t num_entries() const { return num_entries_; }
  [[nodiscard]] std::int64_t num_self_loops() const { return num_self_loops_; }
  [[nodiscard]] std::int64_t num_edges() const { return num_edges_; }
  /// Number of self loops that were read and dropped.
  [[nodiscard]] std::int64_t num_dropped_loops() const { return num_dropped_loops_; }

  /// Number of entries of A in the row of each vertex, without self loops, for the vertices balanced_range(N, size, rank). Collective.
  [[nodiscard]] std::vector<std::int64_t> block_degrees() const;

  /// Sends the positions of vertices to their edge owners. Collective.
  void set_placement(Placement const& placement);

  /// Calls on_edge(Placed) for every edge, on one rank each, in rounds. After each round calls end_of_round() on all ranks, which may
  /// communicate. With `drains`, the edges are removed, and their memory is reused for the records that the callbacks add to the pool.
  /// Collective. Call set_placement() first.
  template<class OnEdge, class EndOfRound>
  void for_each_edge(bool drains, OnEdge&& on_edge, EndOfRound&& end_of_round, StepProgress const& progress);

  /// Calls visit(a, b) with the original ids of this rank's edges.
  template<class Visit>
  void for_each_local_edge(Visit&& visit) const {
    for (std::size_t bucket = 0; bucket < buckets_.num_lists(); ++bucket)
      buckets_.for_each_piece(bucket, [&](std::span<Stored const> edges) {
        for (auto const& edge : edges)
          visit(static_cast<std::int64_t>(owners_.vertex_at(comm_.rank(), edge.local)),
                static_cast<std::int64_t>(edge.other));
      });
  }

 private:
  static constexpr int bucket_bits = 9; // some thousand edges, which can be sorted in the second-level cache
  static constexpr std::uint64_t bucket_size = std::uint64_t{1} << bucket_bits;

  enum class Kind : std::uint8_t { weights, relations, numbers } kind_ = Kind::weights; // of the values
  void push_edge(Outbox<Stored>& outbox, Edge edge, float value) const;
  /// Edges with different relations are never repeats of each other. Throws UserError if a sum of weights exceeds the range of a float, or if
  /// an edge with features has a repeat. Not collective.
  void merge(EdgeRules::Repeats repeats);
  float sum_of(std::span<float const> weights, Stored const& edge) const;
  void count_degrees();

  runtime::Communicator const& comm_;
  EdgeOwners owners_;
  bool is_directed_;
  RecordLists<Stored> buckets_; // by `local`
  std::vector<std::uint32_t> degrees_;
  std::vector<std::array<Id, 2>> positions_;
  std::int64_t num_edges_ = 0;
  std::int64_t num_entries_ = 0;
  std::int64_t num_self_loops_ = 0;
  std::int64_t num_dropped_loops_ = 0;
};

template<class Id, bool has_values>
void EdgeStore<Id, has_values>::push_edge(Outbox<Stored>& outbox, Edge edge, float value) const {
  auto near = static_cast<std::uint64_t>(edge.target);
  auto far = static_cast<std::uint64_t>(edge.source);
  if (near >= owners_.num_vertices() || far >= owners_.num_vertices())
    runtime::throw_user("edge {} -> {} of a graph of {} vertices: ids go from 0 to {}", edge.source,
                        edge.target, owners_.num_vertices(), owners_.num_vertices() - 1);
  if (!is_directed_) {
    auto const [smaller, larger] = std::minmax(near, far);
    bool const at_smaller = ((smaller + larger) & 1) == 0;
    std::tie(near, far) = at_smaller ? std::tuple(smaller, larger) : std::tuple(larger, smaller);
  }
  auto const home = owners_.home_of(near);
  Stored stored;
  stored.local = static_cast<Id>(home.local);
  stored.other = static_cast<Id>(far);
  if constexpr (has_values) stored.value = value;
  outbox.push(home.rank, stored);
}

template<class Id, bool has_values>
std::int64_t EdgeStore<Id, has_values>::collect(GraphSource const& source, EdgeRules const& rules,
                                                StepProgress const& progress, EdgeFeatureRows* features) {
  ORTHANT_REQUIRE(!source.needs_resolving(), "a store is exported before it is partitioned anew");
  if (source.facts().has_relations()) kind_ = Kind::relations;
  if (features != nullptr) kind_ = Kind::numbers;
  std::int64_t num_read = 0;
  {
    auto const stream = source.edges(1 << 15);
    EdgeBatch batch;
    exchange<Stored>(
        comm_,
        [&](Outbox<Stored>& outbox) {
          while (!outbox.is_full()) {
            if (!stream->next(batch)) return false;
            num_read += static_cast<std::int64_t>(batch.edges.size());
            for (std::size_t i = 0; i < batch.edges.size(); ++i) {
              auto const edge = batch.edges[i];
              if (edge.source == edge.target && rules.self_loops == EdgeRules::SelfLoops::drop) {
                ++num_dropped_loops_;
                continue;
              }
              auto const value = [&] {
                if constexpr (!has_values) return 1.0F;
                if (features != nullptr) return as_weight(features->add(batch, i));
                return kind_ == Kind::relations ? static_cast<float>(batch.relations[i]) : batch.weights[i];
              };
              push_edge(outbox, edge, value());
            }
          }
          auto const done = stream->progress();
          if (done.total > 0) progress(static_cast<double>(done.done) / static_cast<double>(done.total));
          return true;
        },
        [&](std::span<Stored const> arrived) {
          for (auto const& edge : arrived)
            buckets_.append(static_cast<std::size_t>(edge.local >> bucket_bits), edge);
        });
  }
  num_read = runtime::all_reduced(comm_, num_read);
  num_dropped_loops_ = runtime::all_reduced(comm_, num_dropped_loops_);
  source.check_num_edges(num_read);
  runtime::together(comm_, [&] { merge(rules.repeats); });
  count_degrees();
  return num_read;
}

template<class Id, bool has_values>
void EdgeStore<Id, has_values>::merge(EdgeRules::Repeats repeats) {
  if (repeats == EdgeRules::Repeats::keep && !has_values) return;
  auto const other_bits = bits_below(owners_.num_vertices());
  std::vector<Stored> edges, scratch;
  std::vector<float> values;
  for (std::size_t bucket = 0; bucket < buckets_.num_lists(); ++bucket) {
    buckets_.drain(bucket, edges);
    radix_sort(edges, scratch, other_bits + bucket_bits, [&](Stored const& edge) {
      return (static_cast<std::uint64_t>(edge.local) & (bucket_size - 1)) << other_bits | edge.other;
    });
    for (std::size_t i = 0; i < edges.size();) {
      auto end = i + 1;
      while (end < edges.size() && edges[end].local == edges[i].local && edges[end].other == edges[i].other)
        ++end;
      if constexpr (has_values) {
        if (kind_ == Kind::numbers && end - i > 1)
          EdgeFeatureRows::refuse_repeats(owners_.vertex_at(comm_.rank(), edges[i].local), edges[i].other);
        values.clear();
        for (auto k = i; k < end; ++k)
          values.push_back(edges[k].value);
        // Ascending order makes the sum independent of the order in which edges arrived.
        std::sort(values.begin(), values.end());
        if (kind_ == Kind::relations)
          values.erase(std::unique(values.begin(), values.end()), values.end());
        else if (repeats == EdgeRules::Repeats::drop && kind_ == Kind::weights)
          values.assign(1, sum_of(values, edges[i]));
        for (auto const value : values) {
          edges[i].value = value;
          buckets_.append(bucket, edges[i]);
        }
      } else {
        buckets_.append(bucket, edges[i]);
      }
      i = end;
    }
  }
}

template<class Id, bool has_values>
float EdgeStore<Id, has_values>::sum_of(std::span<float const> weights, Stored const& edge) const {
  double sum = 0;
  for (auto const weight : weights)
    sum += weight;
  auto const rounded = static_cast<float>(sum);
  if (!std::isfinite(rounded))
    runtime::throw_user(
        "the {} weights of the edge between vertices {} and {} add up to {}, more than a float "
        "holds; scale the weights down, or keep repeats apart (--duplicates keep)",
        weights.size(), owners_.vertex_at(comm_.rank(), edge.local), edge.other, sum);
  return rounded;
}

template<class Id, bool has_values>
void EdgeStore<Id, has_values>::count_degrees() {
  std::int64_t num_loops = 0;
  std::int64_t num_local = 0;
  std::vector<Stored> edges;
  std::size_t bucket = 0;
  std::size_t next = 0;
  auto const is_loop = [&](Stored const& edge) {
    auto const home = owners_.home_of(edge.other);
    return home.rank == comm_.rank() && home.local == edge.local;
  };
  struct End {
    Id local;
  };
  exchange<End>(
      comm_,
      [&](Outbox<End>& outbox) {
        for (; bucket < buckets_.num_lists(); ++bucket, next = 0) {
          if (outbox.is_full()) return true; // checked first, so that a bucket is read only once
          if (next == 0) buckets_.read(bucket, edges);
          for (; next < edges.size(); ++next) {
            if (outbox.is_full()) return true;
            auto const& edge = edges[next];
            ++num_local;
            if (is_loop(edge)) {
              ++num_loops;
              continue;
            }
            ++degrees_[edge.local];
            if (!is_directed_) {
              auto const home = owners_.home_of(edge.other);
              outbox.push(home.rank, {static_cast<Id>(home.local)});
            }
          }
        }
        return false;
      },
      [&](std::span<End const> arrived) {
        for (auto const& end : arrived)
          ++degrees_[end.local];
      });
  num_edges_ = runtime::all_reduced(comm_, num_local);
  num_self_loops_ = runtime::all_reduced(comm_, num_loops);
  num_entries_ = is_directed_ ? num_edges_ : 2 * num_edges_ - num_self_loops_;
}

template<class Id, bool has_values>
std::vector<std::int64_t> EdgeStore<Id, has_values>::block_degrees() const {
  struct Degree {
    std::int64_t vertex;
    std::int64_t degree;
  };
  auto const num_vertices = static_cast<std::int64_t>(owners_.num_vertices());
  auto const mine = runtime::balanced_range(num_vertices, comm_.size(), comm_.rank());
  std::vector<std::int64_t> result(static_cast<std::size_t>(mine.size()));
  std::size_t next = 0;
  exchange<Degree>(
      comm_,
      [&](Outbox<Degree>& outbox) {
        for (; next < degrees_.size() && !outbox.is_full(); ++next) {
          auto const vertex = static_cast<std::int64_t>(owners_.vertex_at(comm_.rank(), next));
          if (vertex < num_vertices)
            outbox.push(block_owner(num_vertices, comm_.size(), vertex), {vertex, degrees_[next]});
        }
        return next < degrees_.size();
      },
      [&](std::span<Degree const> arrived) {
        for (auto const& [vertex, degree] : arrived)
          result[static_cast<std::size_t>(vertex - mine.begin)] = degree;
      });
  return result;
}

template<class Id, bool has_values>
void EdgeStore<Id, has_values>::set_placement(Placement const& placement) {
  struct Told {
    Id local;
    std::array<Id, 2> positions;
  };
  positions_.resize(owners_.num_local());
  auto const& p1 = placement.of(Order::p1);
  auto const& p2 = placement.of(Order::p2);
  std::size_t next = 0;
  exchange<Told>(
      comm_,
      [&](Outbox<Told>& outbox) {
        for (; next < p1.size() && !outbox.is_full(); ++next) {
          auto const home = owners_.home_of(static_cast<std::uint64_t>(placement.vertices.begin) + next);
          outbox.push(home.rank,
                      {static_cast<Id>(home.local), {static_cast<Id>(p1[next]), static_cast<Id>(p2[next])}});
        }
        return next < p1.size();
      },
      [&](std::span<Told const> arrived) {
        for (auto const& told : arrived)
          positions_[told.local] = told.positions;
      });
}

template<class Id, bool has_values>
template<class OnEdge, class EndOfRound>
void EdgeStore<Id, has_values>::for_each_edge(bool drains, OnEdge&& on_edge, EndOfRound&& end_of_round,
                                              StepProgress const& progress) {
  struct Visit : detail::MaybeValue<has_values> {
    Id there; // the other end, as a local number of the rank that owns that end
    std::array<Id, 2> local;
  };
  std::vector<Stored> edges;
  std::size_t bucket = 0;
  std::size_t next = 0;
  exchange<Visit>(
      comm_,
      [&](Outbox<Visit>& outbox) {
        for (; bucket < buckets_.num_lists(); ++bucket, next = 0) {
          if (outbox.is_full()) return true; // checked first, so that a bucket is drained only once
          if (next == 0) {
            if (drains)
              buckets_.drain(bucket, edges);
            else
              buckets_.read(bucket, edges);
          }
          for (; next < edges.size(); ++next) {
            if (outbox.is_full()) {
              progress(static_cast<double>(bucket) / static_cast<double>(buckets_.num_lists()));
              return true;
            }
            auto const& edge = edges[next];
            auto const home = owners_.home_of(edge.other);
            Visit visit;
            visit.there = static_cast<Id>(home.local);
            visit.local = positions_[edge.local];
            if constexpr (has_values) visit.value = edge.value;
            outbox.push(home.rank, visit);
          }
        }
        return false;
      },
      [&](std::span<Visit const> arrived) {
        constexpr std::size_t ahead = 24; // prefetch distance, because positions are read in random order
        for (std::size_t i = 0; i < arrived.size(); ++i) {
          if (i + ahead < arrived.size()) __builtin_prefetch(&positions_[arrived[i + ahead].there]);
          auto const& visit = arrived[i];
          Placed placed;
          placed.local = visit.local;
          placed.other = positions_[visit.there];
          if constexpr (has_values) placed.value = visit.value;
          on_edge(placed);
        }
        end_of_round();
      });
}

} // namespace orthant::graph
