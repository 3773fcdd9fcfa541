// SPDX-License-Identifier: Apache-2.0
#include "graph/partition/placement.hpp"

#include "graph/store/listed_block.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/counts.hpp"
#include "runtime/numbers/random.hpp"

#include <functional>
#include <numeric>
#include <optional>
#include <utility>

namespace orthant::graph {

namespace {

using runtime::Communicator;
using runtime::host;
using runtime::index;
using runtime::Purpose;
using runtime::RandomStream;

// Layers of the permutation's streams: the bins of a draw use layers from 1 on (permutation.cpp), these are above.
constexpr std::uint32_t whole_layer = 1U << 30;
constexpr std::uint32_t class_layer = 1U << 29;

/// Numbers the vertices by degree class, largest first, and within a class by id; the callers shuffle classes.
class DegreeOrder {
 public:
  DegreeOrder(Communicator const& comm, std::span<std::int64_t const> degrees)
      : sizes_(index(num_degree_classes())),
        bases_(sizes_.size()),
        before_(sizes_.size()) {
    for (auto const degree : degrees)
      ++sizes_[index(degree_class(degree))];
    before_ = sizes_;
    runtime::exclusive_scan(comm, before_);
    runtime::all_reduce(host, comm, sizes_);
    for (auto c = sizes_.size() - 1; c-- > 0;)
      bases_[c] = bases_[c + 1] + sizes_[c + 1];
  }

  struct Place {
    std::int64_t base;     // position of the class's first vertex in the order of degrees
    std::int64_t in_class; // number within the class
    std::size_t degree_class;
  };
  /// Must be called for this rank's vertices in the order of their ids.
  [[nodiscard]] Place next(std::int64_t degree) {
    auto const c = index(degree_class(degree));
    return {bases_[c], before_[c]++, c};
  }
  [[nodiscard]] std::vector<std::int64_t> const& class_sizes() const { return sizes_; }

 private:
  std::vector<std::int64_t> sizes_;  // number of vertices of each class
  std::vector<std::int64_t> bases_;  // number of vertices of all larger classes
  std::vector<std::int64_t> before_; // vertices of the class on lower ranks, plus those so far on this one
};

/// The place of every vertex of the block in the order of degrees. Vertices of a class are shuffled with the keys of this draw.
std::vector<std::int64_t> draw_places(Communicator const& comm, std::uint64_t seed, std::uint32_t draw,
                                      std::span<std::int64_t const> degrees) {
  DegreeOrder order(comm, degrees);
  std::vector<std::optional<runtime::KeyedBijection>> shuffles(order.class_sizes().size());
  for (std::size_t c = 0; c < shuffles.size(); ++c)
    if (auto const size = order.class_sizes()[c]; size > 0)
      shuffles[c].emplace(
          static_cast<std::uint64_t>(size),
          RandomStream(seed, Purpose::permutation, draw, class_layer + static_cast<std::uint32_t>(c)).key());

  std::vector<std::int64_t> places(degrees.size());
  for (std::size_t i = 0; i < degrees.size(); ++i) {
    auto const place = order.next(degrees[i]);
    auto const& shuffle = *shuffles[place.degree_class];
    places[i] = place.base + static_cast<std::int64_t>(shuffle(static_cast<std::uint64_t>(place.in_class)));
  }
  return places;
}

/// Numbers of vertices of each cluster, on all ranks and on lower ranks, and sums of their degrees.
struct ClusterSums {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> before;
  std::vector<std::int64_t> degrees;
};

ClusterSums sum_clusters(Communicator const& comm, std::span<std::int64_t const> degrees,
                         std::span<std::int32_t const> clusters) {
  std::int64_t num_clusters = 0;
  for (auto const cluster : clusters)
    num_clusters = std::max<std::int64_t>(num_clusters, cluster + 1);
  num_clusters = runtime::all_reduced(comm, num_clusters, runtime::Reduction::max);

  ClusterSums sums{
      std::vector<std::int64_t>(index(num_clusters)), {}, std::vector<std::int64_t>(index(num_clusters))};
  for (std::size_t i = 0; i < clusters.size(); ++i) {
    ++sums.sizes[index(clusters[i])];
    sums.degrees[index(clusters[i])] += degrees[i] + 1; // plus its self loop
  }
  sums.before = sums.sizes;
  runtime::exclusive_scan(comm, sums.before);
  runtime::all_reduce(host, comm, sums.sizes);
  runtime::all_reduce(host, comm, sums.degrees);
  return sums;
}

/// Positions in p1 and p2 that keep clusters whole (cluster_coordinate() in permutation.hpp).
std::array<std::vector<std::int64_t>, 2> place_clusters(Communicator const& comm, std::uint64_t seed,
                                                        std::span<std::int64_t const> degrees,
                                                        std::span<std::int32_t const> clusters) {
  auto const sums = sum_clusters(comm, degrees, clusters);
  std::vector<std::size_t> by_weight(sums.sizes.size());
  std::iota(by_weight.begin(), by_weight.end(), std::size_t{0});
  std::stable_sort(by_weight.begin(), by_weight.end(),
                   [&](std::size_t a, std::size_t b) { return sums.degrees[a] > sums.degrees[b]; });

  std::array<std::vector<std::int64_t>, 2> positions;
  for (std::uint32_t draw = 0; draw < 2; ++draw) {
    std::vector<std::pair<std::uint64_t, std::size_t>> line; // coordinate, cluster
    for (std::size_t t = 0; t < by_weight.size(); ++t)
      line.emplace_back(cluster_coordinate(t, seed, draw), by_weight[t]);
    std::sort(line.begin(), line.end());
    std::vector<std::int64_t> next(by_weight.size()); // position of this rank's next vertex of each cluster
    std::int64_t first = 0;
    for (auto const& [coordinate, cluster] : line) {
      next[cluster] = first + sums.before[cluster];
      first += sums.sizes[cluster];
    }
    positions[draw].reserve(clusters.size());
    for (auto const cluster : clusters)
      positions[draw].push_back(next[index(cluster)]++);
  }
  return positions;
}

/// Positions in p1. The local order sorts vertices by cluster, and within clusters by id; deal_pieces() then deals its pieces.
std::vector<std::int64_t> place_pieces(Communicator const& comm, std::span<std::int64_t const> degrees,
                                       std::span<std::int32_t const> clusters) {
  auto const sums = sum_clusters(comm, degrees, clusters);
  ListPlaces const position_of(deal_pieces(sums.sizes, sums.degrees));
  std::vector<std::int64_t> next(sums.sizes.size()); // local order: place of each cluster's next vertex
  std::exclusive_scan(sums.sizes.begin(), sums.sizes.end(), next.begin(), std::int64_t{0});
  std::ranges::transform(next, sums.before, next.begin(), std::plus{});
  std::vector<std::int64_t> positions;
  positions.reserve(clusters.size());
  for (auto const cluster : clusters)
    positions.push_back(position_of(next[index(cluster)]++));
  return positions;
}

std::vector<std::int64_t> deal_positions(Communicator const& comm, std::int64_t num_vertices,
                                         std::uint64_t seed, std::uint32_t draw,
                                         std::span<std::int64_t const> degrees) {
  auto positions = draw_places(comm, seed, draw, degrees);
  Deal const deal(num_vertices, num_bins_for(num_vertices), seed, draw);
  for (auto& position : positions)
    position = deal.position_of(position);
  return positions;
}

} // namespace

std::vector<std::int32_t> clusters_by_id(Communicator const& comm, std::int64_t num_vertices,
                                         std::int64_t num_clusters) {
  auto const mine = runtime::balanced_range(num_vertices, comm.size(), comm.rank());
  std::vector<std::int32_t> clusters;
  clusters.reserve(index(mine.size()));
  for (auto v = mine.begin; v < mine.end; ++v)
    clusters.push_back(static_cast<std::int32_t>(runtime::balanced_part(num_vertices, num_clusters, v)));
  return clusters;
}

Placement place_vertices(Communicator const& comm, std::int64_t num_vertices, PermutationKind kind,
                         std::uint64_t seed, std::span<std::int64_t const> degrees,
                         std::span<std::int32_t const> clusters) {
  Placement placement;
  placement.num_vertices = num_vertices;
  placement.vertices = runtime::balanced_range(num_vertices, comm.size(), comm.rank());
  auto const num_local = index(placement.vertices.size());
  ORTHANT_REQUIRE(degrees.size() == num_local);

  if (kind == PermutationKind::natural || kind == PermutationKind::single) {
    auto& positions = placement.positions[0];
    positions.resize(num_local);
    std::iota(positions.begin(), positions.end(), placement.vertices.begin);
    if (kind == PermutationKind::single) {
      runtime::KeyedBijection const shuffle(static_cast<std::uint64_t>(num_vertices),
                                            RandomStream(seed, Purpose::permutation, 0, whole_layer).key());
      for (auto& position : positions)
        position = static_cast<std::int64_t>(shuffle(static_cast<std::uint64_t>(position)));
    }
    return placement;
  }
  ORTHANT_REQUIRE(kind == PermutationKind::twofold || clusters.size() == num_local);
  if (kind == PermutationKind::pieces) {
    placement.positions[0] = place_pieces(comm, degrees, clusters);
    return placement;
  }
  placement.has_two_orders = true;
  if (kind == PermutationKind::cluster) {
    placement.positions = place_clusters(comm, seed, degrees, clusters);
    return placement;
  }
  for (std::uint32_t draw = 0; draw < 2; ++draw)
    placement.positions[draw] = deal_positions(comm, num_vertices, seed, draw, degrees);
  return placement;
}

std::vector<std::int64_t> to_positions(Communicator const& comm, std::int64_t num_vertices,
                                       std::span<std::int64_t const> positions,
                                       std::span<std::int64_t const> values) {
  struct Sent {
    std::int64_t position;
    std::int64_t value;
  };
  PositionOwners const owners{num_vertices, comm.size()};
  auto const mine = owners.range(comm.rank());
  std::vector<std::int64_t> result(index(mine.size()));
  std::size_t next = 0;
  exchange<Sent>(
      comm,
      [&](Outbox<Sent>& outbox) {
        for (; next < positions.size() && !outbox.is_full(); ++next)
          outbox.push(owners.owner(positions[next]), {positions[next], values[next]});
        return next < positions.size();
      },
      [&](std::span<Sent const> arrived) {
        for (auto const& [position, value] : arrived)
          result[index(position - mine.begin)] = value;
      });
  return result;
}

std::vector<std::int64_t> fetch_block(Communicator const& comm, std::int64_t num_vertices,
                                      std::span<std::int64_t const> mine, Range wanted) {
  auto const num_ranks = index(comm.size());
  auto const held = runtime::balanced_range(num_vertices, comm.size(), comm.rank());
  auto const meet = [](Range a, Range b) {
    Range const both{std::max(a.begin, b.begin), std::min(a.end, b.end)};
    return both.begin < both.end ? both : Range{};
  };
  std::vector<std::int64_t> asked_by(2 * num_ranks);
  std::array<std::int64_t, 2> const request{wanted.begin, wanted.end};
  runtime::all_gather(host, comm, request, asked_by);

  std::vector<std::int64_t> reply;
  std::vector<std::int64_t> send_counts(num_ranks);
  std::vector<std::int64_t> receive_counts(num_ranks);
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    auto const part = meet({asked_by[2 * rank], asked_by[2 * rank + 1]}, held);
    send_counts[rank] = part.size();
    reply.insert(reply.end(), mine.begin() + (part.size() == 0 ? 0 : part.begin - held.begin),
                 mine.begin() + (part.size() == 0 ? 0 : part.end - held.begin));
    receive_counts[rank] =
        meet(wanted, runtime::balanced_range(num_vertices, comm.size(), static_cast<int>(rank))).size();
  }
  std::vector<std::int64_t> result(index(wanted.size()));
  runtime::all_to_allv(host, comm, reply, send_counts, result, receive_counts);
  return result;
}

std::vector<std::int64_t> other_positions_of_rows(Communicator const& comm, Placement const& placement,
                                                  Range rows) {
  auto const n = placement.num_vertices;
  auto const by_position = to_positions(comm, n, placement.of(Order::p1), placement.of(Order::p2));
  // From the owners of whole checksum chunks to the owners of tile rows; all positions are requested from block owners.
  auto const mine = PositionOwners{n, comm.size()}.range(comm.rank());
  struct Pair {
    std::int64_t position;
    std::int64_t value;
  };
  auto const block = runtime::balanced_range(n, comm.size(), comm.rank());
  std::vector<std::int64_t> in_block(static_cast<std::size_t>(block.size()));
  std::size_t next = 0;
  exchange<Pair>(
      comm,
      [&](Outbox<Pair>& outbox) {
        for (; next < by_position.size() && !outbox.is_full(); ++next) {
          auto const position = mine.begin + static_cast<std::int64_t>(next);
          outbox.push(block_owner(n, comm.size(), position), {position, by_position[next]});
        }
        return next < by_position.size();
      },
      [&](std::span<Pair const> arrived) {
        for (auto const& [position, value] : arrived)
          in_block[static_cast<std::size_t>(position - block.begin)] = value;
      });
  return fetch_block(comm, n, in_block, rows);
}

} // namespace orthant::graph
